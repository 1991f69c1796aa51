//! Reads an input for a flame graph and writes it where it should go.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use floodmark_analyze::{
    Direction, Flame, FlameOf, FrameChoice, OriginTotalsFold, PathBy, PathRules, ScopePaths, SplitBy,
    StackCounts,
};
use floodmark_convert::{OpenProps, folded, open_samples};
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_event::units::{Instant, format_bytes};
use floodmark_view::flame::{FlameChart, draw as drawing, page};
use floodmark_view::plot::{Shade, label, pdf, svg};
use floodmark_view::{Caveats, Report, caveat_sentences, plain};

use crate::drawing::png;
use crate::error::hinted;
use crate::pass::{fold_over, losses, open};
use crate::printer::Printer;
use crate::reporting::{each_row, holds};
use crate::scopes;
use crate::whole_file::{self, Overwrite};

/// What to draw.
#[derive(Clone, Debug)]
pub(crate) struct FlameProps {
    pub(crate) of: FlameOf,
    pub(crate) at: Option<Instant>,
    pub(crate) by: PathBy,
    pub(crate) direction: Direction,
    pub(crate) frames: FrameChoice,
    pub(crate) filter: Filter,
    pub(crate) open: OpenProps,
}

/// What is measured of allocations.
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

/// What a flame graph becomes.
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
    /// What the ending of a file asks for.
    pub(crate) fn of_ending(ending: &str) -> Option<Self> {
        Some(match ending {
            "svg" => Self::Svg,
            "png" => Self::Png,
            "pdf" => Self::Pdf,
            "html" | "htm" => Self::Html,
            "folded" => Self::Folded,
            _ => return None,
        })
    }
}

/// How it looks and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    pub(crate) title: Option<&'a str>,
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
    pub(crate) output: &'a Path,
    pub(crate) overwrite: Overwrite,
    pub(crate) format: FlameFormat,
}

/// Reads events, or, where there are none, stack samples.
pub(crate) fn gather(path: &Path, props: &FlameProps, printer: &Printer) -> Result<Report<Flame>> {
    let is_stdin = whole_file::is_standard(path);
    let (has_events, has_samples) = if is_stdin { (true, false) } else { holds(path, &props.open)? };
    if has_events {
        let report = of_events(path, props, printer)?;
        if report.caveats.events_read > 0 || !has_samples {
            return Ok(report);
        }
    }
    of_samples(path, props, printer)
}

fn rules(path: &Path, props: &FlameProps) -> Result<PathRules> {
    let scopes =
        if props.by == PathBy::Scope { scopes::paths(path, &props.open)? } else { ScopePaths::default() };
    Ok(PathRules { by: props.by, frames: props.frames, scopes, ..PathRules::default() })
}

fn of_events(path: &Path, props: &FlameProps, printer: &Printer) -> Result<Report<Flame>> {
    let rules = rules(path, props)?;
    let split = if props.by == PathBy::Scope { SplitBy::Scope } else { SplitBy::Nothing };
    let source_name = path.display().to_string();
    let mut source = open(path, &props.open)?;
    let fold = OriginTotalsFold::new(props.at, split);
    let (report, _) = fold_over(source.as_mut(), &source_name, &props.filter, fold, printer)?;
    let flame = Flame::of_weights(&report.result, source.tables(), &rules, props.of, props.direction);
    Ok(Report { source: source_name, losses: report.losses, caveats: report.caveats, result: flame })
}

fn of_samples(path: &Path, props: &FlameProps, printer: &Printer) -> Result<Report<Flame>> {
    let source_name = path.display().to_string();
    let mut source = open_samples(path, &props.open)?;
    let mut counts = StackCounts::default();
    each_row(source.as_mut(), &source_name, printer, |rows, _| {
        for row in rows {
            if let Row::Stack(row) = row {
                counts.add(row);
            }
        }
    })?;
    if counts.is_empty() {
        return Err(hinted(
            format!("{} has neither allocations nor stacks", plain(&source_name)),
            "'floodmark run --stacks' takes stacks of what it runs; 'floodmark info' says what an input holds",
        ));
    }
    if props.of != FlameOf::Marked || props.at.is_some() {
        printer.say("note: there are no allocations; what is drawn is how often each call was seen");
    }
    let rules = PathRules { by: props.by, frames: props.frames, ..PathRules::default() };
    let flame = counts.flame(source.tables(), &rules, props.direction);
    let caveats = Caveats { events_read: 1, events_selected: 1, ..Caveats::default() };
    Ok(Report { source: source_name, losses: losses(&source.losses()), caveats, result: flame })
}

/// Writes a flame graph to its file.
pub(crate) fn draw(report: &Report<Flame>, look: &Look<'_>, printer: &Printer) -> Result<()> {
    let name = Path::new(&report.source).file_name().and_then(|name| name.to_str());
    let mut chart = FlameChart::of(&report.result, name.unwrap_or(&report.source));
    if let Some(title) = look.title {
        chart.title = label(title);
    }
    if look.format == FlameFormat::Folded {
        fold_paths(look, &report.result, printer)?;
    } else {
        let (bytes, size) = bytes(&chart, look)?;
        whole_file::fill(look.output, look.overwrite, |out| Ok(out.write_all(&bytes)?))?;
        let size = size.map_or_else(String::new, |(w, h)| format!("{w}x{h}, "));
        let like = format!("{size}{}", format_bytes(bytes.len() as u64));
        whole_file::say_written(look.output, &like, printer);
    }
    for doubt in caveat_sentences(&report.caveats) {
        printer.say(&format!("note: {doubt}"));
    }
    printer.lost(&report.losses);
    Ok(())
}

fn fold_paths(look: &Look<'_>, flame: &Flame, printer: &Printer) -> Result<()> {
    let mut count = 0;
    whole_file::fill(look.output, look.overwrite, |out| {
        flame.each_path(|path, value| {
            count += 1;
            folded::write_line(out, path.iter().map(|step| plain(step)), value)
        })?;
        Ok(())
    })?;
    if !whole_file::is_standard(look.output) {
        let name = look.output.display().to_string();
        let paths = if count == 1 { "path" } else { "paths" };
        printer.say(&format!("wrote {count} {paths} to {}", plain(&name)));
    }
    Ok(())
}

type Sized = (Vec<u8>, Option<(f64, f64)>);

fn bytes(chart: &FlameChart, look: &Look<'_>) -> Result<Sized> {
    if look.format == FlameFormat::Html {
        let theme = if look.is_dark { page::PageTheme::Dark } else { page::PageTheme::Reader };
        return Ok((page::html(chart, theme).into_bytes(), None));
    }
    let shade = if look.is_dark { Shade::Dark } else { Shade::Light };
    let scene = drawing::scene(chart, look.width, shade);
    let bytes = match look.format {
        FlameFormat::Pdf => pdf::pdf(&scene),
        FlameFormat::Png => png(&scene)?,
        FlameFormat::Svg | FlameFormat::Html | FlameFormat::Folded => svg::svg(&scene).into_bytes(),
    };
    Ok((bytes, Some(scene.size)))
}
