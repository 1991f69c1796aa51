//! Draws a flame graph and writes it where it should go.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use floodmark_analyze::{Flame, FlameOf};
use floodmark_convert::folded;
use floodmark_event::units::format_bytes;
use floodmark_inspect::Answer;
use floodmark_view::flame::{FlameChart, draw as drawing, page};
use floodmark_view::plot::{Shade, label, pdf};
use floodmark_view::{caveat_sentences, plain};

use crate::drawing::png;
use crate::printer::Printer;
use crate::whole_file::{self, Overwrite};

/// What box width measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Of {
    /// Bytes live at the peak
    Peak,
    /// Bytes live at the end
    End,
    /// All bytes ever allocated
    Allocated,
    /// Allocations
    Count,
}

impl From<Of> for FlameOf {
    fn from(of: Of) -> Self {
        match of {
            Of::Peak => Self::Marked,
            Of::End => Self::End,
            Of::Allocated => Self::Allocated,
            Of::Count => Self::Count,
        }
    }
}

/// Format of a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlameFormat {
    /// Boxes that stay sharp at any size
    Svg,
    /// Pixels
    Png,
    /// A page to print
    Pdf,
    /// A page that follows the width of its window
    Html,
    /// Lines 'a;b;c bytes' for other tools
    Folded,
}

impl FlameFormat {
    /// Format that a file extension stands for.
    pub(crate) fn of_extension(extension: &str) -> Option<Self> {
        Some(match extension {
            "svg" => Self::Svg,
            "png" => Self::Png,
            "pdf" => Self::Pdf,
            "html" | "htm" => Self::Html,
            "folded" => Self::Folded,
            _ => return None,
        })
    }
}

/// How a flame graph looks and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style<'a> {
    pub(crate) title: Option<&'a str>,
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
    pub(crate) output: &'a Path,
    pub(crate) overwrite: Overwrite,
    pub(crate) format: FlameFormat,
}

/// Writes a flame graph to its file.
pub(crate) fn draw(answer: &Answer<Flame>, style: &Style<'_>, printer: &Printer) -> Result<()> {
    let name = Path::new(&answer.source).file_name().and_then(|name| name.to_str());
    let mut chart = FlameChart::of(&answer.result, name.unwrap_or(&answer.source));
    if let Some(title) = style.title {
        chart.title = label(title);
    }
    if style.format == FlameFormat::Folded {
        fold_paths(style, &answer.result, printer)?;
    } else {
        let (bytes, size) = bytes(&chart, style)?;
        whole_file::fill(style.output, style.overwrite, |out| Ok(out.write_all(&bytes)?))?;
        let size = size.map_or_else(String::new, |(w, h)| format!("{w}x{h}, "));
        let like = format!("{size}{}", format_bytes(bytes.len() as u64));
        whole_file::say_written(style.output, &like, printer);
    }
    for doubt in caveat_sentences(&answer.caveats) {
        printer.say(&format!("note: {doubt}"));
    }
    printer.lost(&answer.losses);
    Ok(())
}

fn fold_paths(style: &Style<'_>, flame: &Flame, printer: &Printer) -> Result<()> {
    let mut count = 0;
    whole_file::fill(style.output, style.overwrite, |out| {
        flame.each_path(|path, value| {
            count += 1;
            folded::write_line(out, path.iter().map(|step| plain(step)), value)
        })?;
        Ok(())
    })?;
    if !whole_file::is_standard(style.output) {
        let name = style.output.display().to_string();
        let paths = if count == 1 { "path" } else { "paths" };
        printer.say(&format!("wrote {count} {paths} to {}", plain(&name)));
    }
    Ok(())
}

type Sized = (Vec<u8>, Option<(f64, f64)>);

fn bytes(chart: &FlameChart, style: &Style<'_>) -> Result<Sized> {
    if style.format == FlameFormat::Html {
        let theme = if style.is_dark { page::PageTheme::Dark } else { page::PageTheme::Reader };
        return Ok((page::html(chart, theme).into_bytes(), None));
    }
    let shade = if style.is_dark { Shade::Dark } else { Shade::Light };
    let scene = drawing::scene(chart, style.width, shade);
    let bytes = match style.format {
        FlameFormat::Pdf => pdf::pdf(&scene),
        FlameFormat::Png => png(&scene)?,
        FlameFormat::Svg | FlameFormat::Html | FlameFormat::Folded => {
            drawing::interactive_svg(&scene).into_bytes()
        }
    };
    Ok((bytes, Some(scene.size)))
}
