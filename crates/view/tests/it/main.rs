//! Pictures, as whole documents.

mod figures;
mod flames;
mod golden;
mod hostile;
mod room;
