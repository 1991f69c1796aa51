//! A scene as PDF: one page of paths and texts, with the font in it.
//!
//! Text stays text, so that it can be searched and copied. Nothing is compressed: what is large is the font,
//! 50 KB. The same scene gives the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::plot::font::{FONT, UNITS, glyph, width};
use crate::plot::scene::{Anchor, Color, Fill, Item, Pen, Scene, Text};
use crate::plot::svg::edged;

/// Points of PDF per pixel.
const SCALE: f64 = 0.75;

/// Writes a scene as a PDF document.
pub fn pdf(scene: &Scene) -> Vec<u8> {
    let mut page = Page::default();
    let (w, h) = scene.size;
    let _ = writeln!(page.text, "{SCALE} 0 0 -{SCALE} 0 {} cm 1 j", num(h * SCALE));
    page.item(&Item::Rect {
        at: [0.0, 0.0, w, h],
        fill: Fill { color: scene.paper, opacity: 1.0 },
        hint: None,
    });
    scene.items.iter().for_each(|item| page.item(item));
    let states: String = page.opacities.iter().enumerate().fold(String::new(), |text, (at, percent)| {
        format!("{text}/G{at} <</ca {}>> ", f64::from(*percent) / 100.0)
    });
    let mut file = File::new();
    let _ = file.object("<</Type/Catalog/Pages 2 0 R>>");
    let _ = file.object("<</Type/Pages/Kids[3 0 R]/Count 1>>");
    let _ = file.object(&format!(
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 {} {}]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>\
         /ExtGState<<{states}>>>>>>",
        num(w * SCALE),
        num(h * SCALE)
    ));
    file.stream("", page.text.as_bytes());
    let _ = file.object(
        "<</Type/Font/Subtype/Type0/BaseFont/FLOODM+DejaVuSans/Encoding/Identity-H/DescendantFonts[6 0 R]\
         /ToUnicode 9 0 R>>",
    );
    let widths = page.glyphs.iter().fold(String::new(), |text, (number, c)| {
        format!("{text}{number}[{}]", num(f64::from(glyph(*c).advance) / UNITS * 1000.0))
    });
    let _ = file.object(&format!(
        "<</Type/Font/Subtype/CIDFontType2/BaseFont/FLOODM+DejaVuSans/CIDSystemInfo<</Registry(Adobe)\
         /Ordering(Identity)/Supplement 0>>/FontDescriptor 7 0 R/CIDToGIDMap/Identity/DW 600/W[{widths}]>>"
    ));
    let _ = file.object(
        "<</Type/FontDescriptor/FontName/FLOODM+DejaVuSans/Flags 4/FontBBox[-1021 -463 1793 1232]\
         /ItalicAngle 0/Ascent 928/Descent -236/CapHeight 729/StemV 80/FontFile2 8 0 R>>",
    );
    file.stream(&format!("/Length1 {}", FONT.len()), FONT);
    file.stream("", to_unicode(&page.glyphs).as_bytes());
    let title = format!("FEFF{}", utf16(&scene.title));
    let info = file.object(&format!("<</Title<{title}>/Producer(floodmark)>>"));
    file.finish(info)
}

/// Objects of a file and where they are.
struct File {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl File {
    fn new() -> Self {
        // Bytes above 127 tell that it is no text.
        Self { bytes: b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n".to_vec(), offsets: Vec::new() }
    }

    /// Writes an object; returns its number.
    fn object(&mut self, text: &str) -> usize {
        self.begin();
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\nendobj\n");
        self.offsets.len()
    }

    fn stream(&mut self, entries: &str, bytes: &[u8]) {
        self.begin();
        let head = format!("<</Length {}{entries}>>\nstream\n", bytes.len());
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\nendstream\nendobj\n");
    }

    fn begin(&mut self) {
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(format!("{} 0 obj\n", self.offsets.len()).as_bytes());
    }

    fn finish(mut self, info: usize) -> Vec<u8> {
        let (count, start) = (self.offsets.len() + 1, self.bytes.len());
        let mut text = format!("xref\n0 {count}\n0000000000 65535 f \n");
        for offset in &self.offsets {
            let _ = writeln!(text, "{offset:010} 00000 n ");
        }
        let _ = write!(
            text,
            "trailer\n<</Size {count}/Root 1 0 R/Info {info} 0 R>>\nstartxref\n{start}\n%%EOF\n"
        );
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes
    }
}

/// Which characters glyphs are.
fn to_unicode(glyphs: &BTreeMap<u16, char>) -> String {
    let mut text = String::from(
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Floodmark def /CMapType 2 def\n\
         1 begincodespacerange <0000> <FFFF> endcodespacerange\n",
    );
    let glyphs: Vec<(&u16, &char)> = glyphs.iter().collect();
    // No more than 100 in one go.
    for some in glyphs.chunks(100) {
        let _ = writeln!(text, "{} beginbfchar", some.len());
        for (number, c) in some {
            let units = utf16(&c.to_string());
            let _ = writeln!(text, "<{number:04X}> <{units}>");
        }
        text += "endbfchar\n";
    }
    text + "endcmap CMapName currentdict /CMap defineresource pop end end\n"
}

/// The content of the page.
#[derive(Default)]
struct Page {
    text: String,
    glyphs: BTreeMap<u16, char>,
    /// Opacities that occur, in percent.
    opacities: Vec<u8>,
}

impl Page {
    fn item(&mut self, item: &Item) {
        match item {
            Item::Rect { fill, .. } if fill.opacity <= 0.0 => {}
            Item::Rect { at, fill, .. } => {
                self.fill(*fill);
                let [x, y, w, h] = at.map(num);
                let _ = writeln!(self.text, "{x} {y} {w} {h} re f");
            }
            Item::Labeled { at, fill, pen, label, .. } => {
                self.paint(pen.as_ref(), Some(fill));
                let [x, y, w, h] = edged(*at, pen.as_ref()).map(num);
                let _ = write!(self.text, "{x} {y} {w} {h} re");
                self.close(pen.is_some(), true);
                if let Some(label) = label {
                    self.label(label);
                }
            }
            Item::Path { points, pen, fill } => {
                let Some(((x, y), rest)) = points.split_first() else { return };
                self.paint(pen.as_ref(), fill.as_ref());
                let _ = write!(self.text, "{} {} m", num(*x), num(*y));
                for (x, y) in rest {
                    let _ = write!(self.text, " {} {} l", num(*x), num(*y));
                }
                self.close(pen.is_some(), fill.is_some());
            }
            Item::Circle { at: (x, y), radius: r, pen, fill, .. } => {
                self.paint(pen.as_ref(), fill.as_ref());
                let _ = write!(self.text, "{} {} m", num(x + r), num(*y));
                // A quarter of a circle, near enough.
                let k = 0.5523 * r;
                let quarters = [
                    [x + r, y + k, x + k, y + r, *x, y + r],
                    [x - k, y + r, x - r, y + k, x - r, *y],
                    [x - r, y - k, x - k, y - r, *x, y - r],
                    [x + k, y - r, x + r, y - k, x + r, *y],
                ];
                for quarter in quarters {
                    let _ = write!(self.text, " {} c", quarter.map(num).join(" "));
                }
                self.close(pen.is_some(), fill.is_some());
            }
            Item::Text(text) => self.label(text),
        }
    }

    fn fill(&mut self, Fill { color, opacity }: Fill) {
        let percent = (opacity * 100.0).round() as u8;
        let at = self.opacities.iter().position(|one| *one == percent).unwrap_or_else(|| {
            self.opacities.push(percent);
            self.opacities.len() - 1
        });
        let _ = write!(self.text, "/G{at} gs {} rg ", rgb(color));
    }

    fn paint(&mut self, pen: Option<&Pen>, fill: Option<&Fill>) {
        if let Some(fill) = fill {
            self.fill(*fill);
        }
        if let Some(Pen { color, width, dash }) = pen {
            let dash = dash.map_or_else(String::new, |(on, off)| format!("{} {}", num(on), num(off)));
            let _ = write!(self.text, "{} RG {} w [{dash}] 0 d ", rgb(*color), num(*width));
        }
    }

    fn close(&mut self, stroked: bool, filled: bool) {
        self.text += match (filled, stroked) {
            (true, true) => " b\n",
            (true, false) => " f\n",
            (false, _) => " S\n",
        };
    }

    fn label(&mut self, label: &Text) {
        let long = width(&label.text, label.size);
        let back = match label.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => long / 2.0,
            Anchor::End => long,
        };
        let (sin, cos) = label.angle.to_radians().sin_cos();
        let (x, y) = (label.x - back * cos, label.y + back * sin);
        let mut codes = String::new();
        for c in label.text.chars() {
            let number = glyph(c).number;
            self.glyphs.entry(number).or_insert(c);
            let _ = write!(codes, "{number:04X}");
        }
        let place = [cos, -sin, -sin, -cos, x, y].map(num).join(" ");
        let size = num(label.size);
        if let Some(halo) = label.halo {
            let _ = writeln!(
                self.text,
                "{} RG 3 w [] 0 d BT /F {size} Tf 1 Tr {place} Tm <{codes}> Tj ET",
                rgb(halo)
            );
        }
        self.fill(Fill { color: label.color, opacity: 1.0 });
        let _ = writeln!(self.text, "BT /F {size} Tf 0 Tr {place} Tm <{codes}> Tj ET");
    }
}

/// Text as digits that stand for its UTF-16.
fn utf16(text: &str) -> String {
    text.encode_utf16().fold(String::new(), |mut text, unit| {
        let _ = write!(text, "{unit:04X}");
        text
    })
}

fn num(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

fn rgb(Color(r, g, b): Color) -> String {
    [r, g, b].map(|part| format!("{:.3}", f64::from(part) / 255.0)).join(" ")
}
