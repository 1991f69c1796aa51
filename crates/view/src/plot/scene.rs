//! Shapes and texts with their places: what is left to do is to write them down.
//!
//! Coordinates are pixels from the upper left corner. What comes later lies above.

pub use crate::plot::columns::Span;

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color(pub u8, pub u8, pub u8);

/// How an outline is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pen {
    /// Its color.
    pub color: Color,
    /// Its width.
    pub width: f64,
    /// Lengths of strokes and gaps; none for a solid line.
    pub dash: Option<(f64, f64)>,
}

impl Pen {
    /// A solid line.
    pub fn solid(color: Color, width: f64) -> Self {
        Self { color, width, dash: None }
    }
}

/// What is inside of an outline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Its color.
    pub color: Color,
    /// From 0, nothing, to 1, nothing shines through.
    pub opacity: f64,
}

/// Which end of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A text of one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Where its anchor is.
    pub x: f64,
    /// Its base line.
    pub y: f64,
    /// What it says.
    pub text: String,
    /// Size of the font.
    pub size: f64,
    /// Its color.
    pub color: Color,
    /// Which end is at `x`.
    pub anchor: Anchor,
    /// Degrees by which it is turned around its anchor, upwards.
    pub angle: f64,
    /// Color of an outline that sets it off from what is below.
    pub halo: Option<Color>,
}

/// Something to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A rectangle.
    Rect {
        /// Left, top, width and height.
        at: [f64; 4],
        /// What is inside.
        fill: Fill,
        /// What it says when pointed at.
        hint: Option<String>,
    },
    /// A rectangle with a text in it, which belong together when pointed at.
    Labeled {
        /// Left, top, width and height.
        at: [f64; 4],
        /// What is inside.
        fill: Fill,
        /// The edge, which lies inside too.
        pen: Option<Pen>,
        /// What is written in it.
        label: Option<Text>,
        /// What it says when pointed at.
        hint: String,
    },
    /// Connected points.
    Path {
        /// The points.
        points: Vec<(f64, f64)>,
        /// The outline.
        pen: Option<Pen>,
        /// What is inside.
        fill: Option<Fill>,
    },
    /// A circle.
    Circle {
        /// Middle.
        at: (f64, f64),
        /// Radius.
        radius: f64,
        /// The outline.
        pen: Option<Pen>,
        /// What is inside.
        fill: Option<Fill>,
        /// What it says when pointed at.
        hint: Option<String>,
    },
    /// A text.
    Text(Text),
}

/// A curve, for those who want to read values from the picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its color.
    pub color: Color,
    /// Where it lies from left to right.
    pub spans: Vec<Span>,
    /// Where it ends.
    pub to: f64,
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Width and height.
    pub size: (f64, f64),
    /// Color behind everything.
    pub paper: Color,
    /// What the picture shows, in words.
    pub title: String,
    /// What is to be drawn, in order.
    pub items: Vec<Item>,
    /// Left, top, width and height of the part in which curves are.
    pub field: [f64; 4],
    /// Instants at the left and right end of the field.
    pub times_ns: (i64, i64),
    /// The curves.
    pub curves: Vec<Curve>,
}
