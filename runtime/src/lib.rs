//! What the three processes share: logs, shutdown, health and metrics endpoint, client.
