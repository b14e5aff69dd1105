//! What accounts may do, asked of the API server question by question.

pub mod list;
pub mod questions;
