"""From measured tables to replicas: a calibrated model of one replica, simulated under load."""
