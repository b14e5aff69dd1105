//! Rogue agents, labels, pauses, windows and a webhook that cannot be reached, on a real API server.

mod labels;
mod pauses;
mod rogue;
mod unreachable_webhook;
mod windows;
