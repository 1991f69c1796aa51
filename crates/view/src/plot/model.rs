//! What a plot shows, and where its legend goes.

pub use floodmark_inspect::plot::{
    Dot, Figure, Layer, Note, Peak, Phase, Point, Role, Series, Shape, Stack, TimeAxis, label,
};

/// Where names of series stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LegendPlace {
    /// At the ends of curves where they do not collide, else above.
    #[default]
    Best,
    /// Above the picture.
    Top,
    /// Inside, in a corner: whether at the right, whether at the bottom.
    Corner(Side, Edge),
    /// Nowhere.
    None,
}

/// Left or right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Left.
    Left,
    /// In the middle.
    Middle,
    /// Right.
    Right,
}

/// Top or bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// At the top.
    Top,
    /// In the middle.
    Middle,
    /// At the bottom.
    Bottom,
}
