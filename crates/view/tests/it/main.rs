//! Pictures, as whole documents.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod figures;
mod golden;
mod hostile;
mod room;
