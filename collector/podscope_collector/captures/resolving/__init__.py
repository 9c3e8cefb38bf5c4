"""Looking up what a capture's targets stand for: DNS names, pods and TPUs."""
