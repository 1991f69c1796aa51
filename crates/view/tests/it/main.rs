//! Pictures, as whole documents.

mod figures;
mod golden;
mod hostile;
mod room;
