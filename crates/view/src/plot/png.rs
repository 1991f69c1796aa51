//! A scene as PNG, drawn from its SVG with the bundled font.

use std::fmt;
use std::sync::Arc;

use resvg::{tiny_skia, usvg};

use crate::plot::font::FONT;
use crate::plot::scene::Scene;
use crate::plot::svg::svg;

/// Why there is no PNG.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drawing the picture failed: {}", self.0)
    }
}

impl std::error::Error for Error {}

/// Draws a scene; one pixel of the picture is one of the scene.
///
/// # Errors
/// If there is not enough memory for the picture.
pub fn png(scene: &Scene) -> Result<Vec<u8>, Error> {
    let failed = |error: &dyn fmt::Display| Error(error.to_string());
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    let options = usvg::Options {
        font_family: "DejaVu Sans".into(),
        fontdb: Arc::new(fonts),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(&svg(scene), &options).map_err(|error| failed(&error))?;
    let (width, height) = (scene.size.0 as u32, scene.size.1 as u32);
    let mut pixels = tiny_skia::Pixmap::new(width, height)
        .ok_or_else(|| failed(&format!("{width}x{height} is too large")))?;
    resvg::render(&tree, tiny_skia::Transform::default(), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(&error))
}
