"""The contract between the parts: wire messages, method paths, errors, exit codes."""
