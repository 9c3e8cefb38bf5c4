"""The per-host daemon, its live metrics, and the simulator."""
