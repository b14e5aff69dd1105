//! Validating admission webhook: an agent may write the status of its own shadow, and nothing else.
