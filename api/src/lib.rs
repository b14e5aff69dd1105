//! The protocol between agent, reconciler and webhook: objects, transitions, writes, names.
