//! A scene as SVG.
//!
//! Every text has the length it was laid out with, so that it fits in whatever font it is shown.

use std::fmt::Write as _;

use crate::plot::font::{FAMILY, width};
use crate::plot::scene::{Anchor, Color, Fill, Item, Pen, Scene, Text};

/// Writes a scene as an SVG document.
pub fn svg(scene: &Scene) -> String {
    let title = format!("<title>{}</title>\n", escape(&scene.title));
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", with_content(scene, &title))
}

/// Writes a scene as an element, for pages that contain it. It has no title: that would show wherever one
/// points.
pub(crate) fn element(scene: &Scene) -> String {
    with_content(scene, "")
}

fn with_content(scene: &Scene, content: &str) -> String {
    let (w, h) = scene.size;
    let (title, family) = (escape(&scene.title), escape(FAMILY));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
         role=\"img\" aria-label=\"{title}\" font-family=\"{family}\">\n{content}\
         <rect width=\"{w}\" height=\"{h}\" fill=\"{}\"/>\n",
        hex(scene.paper),
    );
    for item in &scene.items {
        write_item(item, &mut text);
    }
    text += "</svg>\n";
    text
}

/// Escapes text for XML and HTML, between tags and in attributes. What XML has no place for is dropped.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

pub(crate) fn hex(Color(r, g, b): Color) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A coordinate, to a tenth of a pixel.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

fn painted(pen: Option<&Pen>, fill: Option<&Fill>) -> String {
    let mut text = match fill {
        None => " fill=\"none\"".to_owned(),
        Some(Fill { color, opacity }) if *opacity >= 1.0 => format!(" fill=\"{}\"", hex(*color)),
        Some(Fill { color, opacity }) => format!(" fill=\"{}\" fill-opacity=\"{opacity}\"", hex(*color)),
    };
    if let Some(Pen { color, width, dash }) = pen {
        let _ = write!(text, " stroke=\"{}\" stroke-width=\"{}\"", hex(*color), round(*width));
        if let Some((on, off)) = dash {
            let _ = write!(text, " stroke-dasharray=\"{} {}\"", number(*on), number(*off));
        }
    }
    text
}

/// A width, to a hundredth of a pixel.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn write_item(item: &Item, text: &mut String) {
    let close = |name: &str, hint: &Option<String>| match hint {
        Some(hint) => format!("><title>{}</title></{name}>\n", escape(hint)),
        None => "/>\n".to_owned(),
    };
    let _ = match item {
        Item::Rect { at, fill, hint } => {
            let [x, y, w, h] = at.map(number);
            let paint = painted(None, Some(fill));
            write!(
                text,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"{paint}{}",
                close("rect", hint)
            )
        }
        Item::Labeled { at, fill, pen, label, hint } => {
            let [x, y, w, h] = edged(*at, pen.as_ref()).map(number);
            let paint = painted(pen.as_ref(), Some(fill));
            let _ = writeln!(
                text,
                "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"{paint}/>",
                escape(hint)
            );
            if let Some(label) = label {
                write_text(label, text);
            }
            writeln!(text, "</g>")
        }
        Item::Circle { at: (x, y), radius, pen, fill, hint } => {
            let [x, y, r] = [*x, *y, *radius].map(number);
            let paint = painted(pen.as_ref(), fill.as_ref());
            write!(text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"{paint}{}", close("circle", hint))
        }
        Item::Path { points, pen, fill } => {
            let paint = painted(pen.as_ref(), fill.as_ref());
            let join = if pen.is_some() { " stroke-linejoin=\"round\"" } else { "" };
            let close = if fill.is_some() { "Z" } else { "" };
            write!(text, "<path d=\"{}{close}\"{paint}{join}/>", way(points)).and_then(|()| writeln!(text))
        }
        Item::Text(label) => {
            write_text(label, text);
            Ok(())
        }
    };
}

/// A rectangle made smaller by as much as its edge reaches out of it.
pub(crate) fn edged([x, y, w, h]: [f64; 4], pen: Option<&Pen>) -> [f64; 4] {
    let half = pen.map_or(0.0, |pen| (pen.width / 2.0).min(w / 2.0).min(h / 2.0));
    [x + half, y + half, w - 2.0 * half, h - 2.0 * half]
}

/// The way of a pen, as short as it can be said.
fn way(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    let mut before: Option<(String, String)> = None;
    for (x, y) in points {
        let (x, y) = (number(*x), number(*y));
        let _ = match &before {
            None => write!(text, "M{x} {y}"),
            Some(before) if *before == (x.clone(), y.clone()) => continue,
            Some((bx, _)) if *bx == x => write!(text, "V{y}"),
            Some((_, by)) if *by == y => write!(text, "H{x}"),
            Some(_) => write!(text, "L{x} {y}"),
        };
        before = Some((x, y));
    }
    text
}

fn write_text(label: &Text, text: &mut String) {
    let Text { x, y, size, color, anchor, angle, halo, .. } = label;
    let long = width(&label.text, *size);
    let (x, y) = (number(*x), number(*y));
    let _ = write!(text, "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" fill=\"{}\"", round(*size), hex(*color));
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    *text += anchor;
    let _ = write!(text, " textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", number(long));
    if *angle != 0.0 {
        let _ = write!(text, " transform=\"rotate({} {x} {y})\"", number(-angle));
    }
    if let Some(halo) = halo {
        let _ = write!(
            text,
            " stroke=\"{}\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\"",
            hex(*halo)
        );
    }
    let _ = writeln!(text, ">{}</text>", escape(&label.text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_short() {
        assert_eq!(way(&[(0.0, 10.0), (5.04, 10.0), (5.0, 2.5), (5.0, 2.52), (7.0, 3.0)]), "M0 10H5V2.5L7 3");
        assert_eq!(number(-0.01), "0");
    }

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escape("</text><script>\"&'\u{0}\u{ffff}"), "&lt;/text&gt;&lt;script&gt;&quot;&amp;&#39;");
    }
}
