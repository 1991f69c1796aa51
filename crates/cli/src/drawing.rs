//! How a picture looks and where it goes: options that commands which draw share.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_event::units::format_bytes;
use floodmark_inspect::ranks::RankPlot;
use floodmark_view::plot::model::{Edge, Side};
use floodmark_view::plot::scene::Scene;
use floodmark_view::plot::{
    Figure, LegendPlace, Props, Shade, Size, TimeAxis, arrange, html, pdf, ranks, svg, terminal,
};

use crate::error::hinted;
use crate::printer::Printer;
use crate::whole_file::{self, Overwrite};

/// How a picture looks and where it goes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Picture")]
pub(crate) struct DrawingArgs {
    /// Write to this file: .svg, .png, .pdf or .html
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if it exists already
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Output format; overrides the file extension
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Width and height in pixels
    #[arg(long, value_name = "WxH", value_parser = parse_size, default_value = "1200x600")]
    pub(crate) size: Size,
    /// Use a dark theme
    #[arg(long, visible_alias = "darkmode")]
    pub(crate) dark: bool,
    /// Place of the legend: best, top, none or a corner such as 'upper left'
    #[arg(long, value_name = "PLACE", value_parser = parse_legend, default_value = "best")]
    pub(crate) legend: LegendPlace,
    /// Angle of output lines, in degrees
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(i16).range(-90..=90), allow_hyphen_values = true)]
    pub(crate) rotate_text: i16,
    /// Shift of output lines to the right and up, in pixels
    #[arg(long, num_args = 2, value_names = ["X", "Y"], allow_hyphen_values = true)]
    pub(crate) move_text: Option<Vec<f64>>,
    /// Characters to show of an output line
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub(crate) trim_text: u16,
}

/// What a picture becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines that stay sharp at any size
    Svg,
    /// Pixels
    Png,
    /// A page to print
    Pdf,
    /// A page that shows values where one points
    Html,
}

impl DrawingArgs {
    /// Refuses to replace a file without --force, before anything is read.
    pub(crate) fn refuse_existing(&self) -> Result<()> {
        self.output
            .as_ref()
            .map_or(Ok(()), |output| whole_file::refuse_existing(output, Overwrite::forced(self.force)))
    }

    /// Returns the options as the drawing code takes them.
    pub(crate) fn props(&self) -> Props {
        let shift = self.move_text.as_deref().unwrap_or_default();
        Props {
            size: self.size,
            shade: if self.dark { Shade::Dark } else { Shade::Light },
            legend: self.legend,
            note_angle: f64::from(self.rotate_text),
            note_shift: (shift.first().copied().unwrap_or(0.0), shift.get(1).copied().unwrap_or(0.0)),
            note_length: usize::from(self.trim_text),
        }
    }

    /// Points of a curve that are worth keeping.
    pub(crate) fn points(&self) -> usize {
        // Three of every interval, and intervals finer than pixels.
        self.size.width as usize * 6
    }

    fn format(&self, output: &Path) -> Result<Format> {
        let by_ending = match extension(output).as_str() {
            "svg" => Some(Format::Svg),
            "png" => Some(Format::Png),
            "pdf" => Some(Format::Pdf),
            "html" | "htm" => Some(Format::Html),
            _ => None,
        };
        self.format.or(by_ending).ok_or_else(|| {
            hinted(
                format!("'{}' does not tell what the picture should become", output.display()),
                "end it in .svg, .png, .pdf or .html, or add --format svg",
            )
        })
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    let bad = || "write a size such as 1200x600, from 200x120 to 10000x10000".to_owned();
    let (width, height) = text.split_once(['x', 'X', '×']).ok_or_else(bad)?;
    let number =
        |text: &str, least: u32| text.trim().parse::<u32>().ok().filter(|n| (least..=10_000).contains(n));
    let (width, height) = number(width, 200).zip(number(height, 120)).ok_or_else(bad)?;
    Ok(Size { width, height })
}

/// Places as `memory_logger` calls them, and ours.
fn parse_legend(text: &str) -> Result<LegendPlace, String> {
    let place = match text {
        "best" => return Ok(LegendPlace::Best),
        "top" => return Ok(LegendPlace::Top),
        "none" => return Ok(LegendPlace::None),
        place => place,
    };
    let (mut side, mut edge) = (Side::Middle, Edge::Middle);
    for word in place.split(' ') {
        match word {
            "left" => side = Side::Left,
            "right" => side = Side::Right,
            "upper" => edge = Edge::Top,
            "lower" => edge = Edge::Bottom,
            "center" => {}
            _ => {
                return Err("write best, top, none, or a place such as 'upper left' or 'center right'".into());
            }
        }
    }
    Ok(LegendPlace::Corner(side, edge))
}

/// What a picture shows.
pub(crate) enum Content {
    /// Curves.
    Figure(Figure),
    /// Ranks of a job.
    Ranks(RankPlot),
}

/// A picture that is to be shown.
pub(crate) struct Picture {
    pub(crate) content: Content,
    pub(crate) props: Props,
}

impl Picture {
    /// Writes it to its file, or draws it in the terminal.
    pub(crate) fn show(&self, args: &DrawingArgs, printer: &Printer) -> Result<()> {
        let Some(output) = &args.output else {
            if args.format.is_some() {
                return Err(hinted(
                    "--format needs a place to write to",
                    "add -o FILE, or -o - for standard output",
                ));
            }
            let layout = printer.layout(None);
            return printer.text(&match &self.content {
                Content::Figure(figure) => terminal::text(figure, &layout),
                Content::Ranks(plot) => ranks::text(plot, &layout),
            });
        };
        let overwrite = Overwrite::forced(args.force);
        let bytes = self.bytes(args.format(output)?)?;
        whole_file::fill(output, overwrite, |out| Ok(out.write_all(&bytes)?))?;
        let Size { width, height } = args.size;
        let like = format!("{width}x{height}, {}", format_bytes(bytes.len() as u64));
        whole_file::say_written(output, &like, printer);
        Ok(())
    }

    fn bytes(&self, format: Format) -> Result<Vec<u8>> {
        let (scene, axis) = match &self.content {
            Content::Figure(figure) => (arrange(figure, &self.props), figure.time),
            Content::Ranks(plot) => (ranks::scene(plot, &self.props), TimeAxis::Elapsed),
        };
        match format {
            Format::Svg => Ok(svg::svg(&scene).into_bytes()),
            Format::Pdf => Ok(pdf::pdf(&scene)),
            Format::Html => Ok(html::html(&scene, axis).into_bytes()),
            Format::Png => png(&scene),
        }
    }
}

/// Pixels of a scene.
#[cfg(feature = "png")]
pub(crate) fn png(scene: &Scene) -> Result<Vec<u8>> {
    Ok(floodmark_view::plot::png::png(scene)?)
}

/// Pixels are something that this build cannot make.
#[cfg(not(feature = "png"))]
pub(crate) fn png(_scene: &Scene) -> Result<Vec<u8>> {
    Err(hinted("this build cannot write PNG", "write .svg, .pdf or .html"))
}

/// File extension, in small letters.
pub(crate) fn extension(path: &Path) -> String {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_lowercase()
}
