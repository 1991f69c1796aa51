//! Pictures of memory over time.
//!
//! A [`Figure`] says what is shown, in bytes and nanoseconds; [`arrange`](fn@arrange) decides where
//! everything goes and makes a [`Scene`] of shapes and texts; what is left for [`svg`], [`pdf`], `png`
//! and [`html`] is to write shapes down. [`terminal`] draws the same figure with characters.
//!
//! Text that comes from a trace is untrusted. It loses control characters when it enters a figure
//! ([`label`]), and every writer escapes what its format needs escaped.

pub mod axis;
pub mod font;
pub mod html;
pub mod model;
pub mod nsys;
pub mod pdf;
#[cfg(feature = "png")]
pub mod png;
pub mod ranks;
pub mod scene;
pub mod svg;
pub mod terminal;

mod arrange;
mod columns;
mod legend;
mod notes;
pub(crate) mod theme;

pub use arrange::{Props, Size, arrange};
pub use model::{
    Dot, Figure, Layer, LegendPlace, Note, Peak, Phase, Point, Role, Series, Shape, Stack, TimeAxis, label,
};
pub use scene::Scene;
pub use theme::Shade;
