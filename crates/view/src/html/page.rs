//! Puts a document into the page, and beside it what can be read where scripts do not run.

use std::fmt::Write as _;

use floodmark_event::units::{
    format_bytes, format_count, format_duration_ns, format_elapsed_ns, format_signed_bytes,
};

use super::Hosting;
use super::data::{Cell, CellKind, Document, Table};
use super::encode;
use crate::figures::percent;

/// The page, as `web/` builds it.
const SHELL: &str = include_str!("../../assets/report.html");
/// What is put in place of these.
const CONNECT: &str = " %FLOODMARK_CONNECT%";
const HOST: &str = "<!--floodmark:host-->\n";
const TITLE: &str = "%FLOODMARK_TITLE%";
const STATIC: &str = "<!--floodmark:static-->";
const DATA: &str = "<!--floodmark:data-->";

/// Rows of a table where scripts do not run.
const STATIC_ROWS: usize = 20;

/// Content Security Policy of the page; a file has no headers that could state it.
pub(super) fn policy(hosting: Hosting) -> String {
    let (_, rest) =
        SHELL.split_once("\"Content-Security-Policy\" content=\"").expect("the page has a policy");
    let (policy, _) = rest.split_once('"').expect("the policy has an end");
    policy.replace(CONNECT, connect(hosting))
}

fn connect(hosting: Hosting) -> &'static str {
    match hosting {
        Hosting::File => "",
        Hosting::Server { .. } => " connect-src 'self';",
    }
}

/// Fills the page.
pub(super) fn fill(document: &Document, columns: &[String], hosting: Hosting) -> String {
    let (policy, rest) = SHELL.split_once(CONNECT).expect("the page has a place for its policy");
    let (meta, rest) = rest.split_once(HOST).expect("the page has a place for who hands it out");
    let (head, rest) = rest.split_once(TITLE).expect("the page has a place for its title");
    let (middle, rest) = rest.split_once(STATIC).expect("the page has a place for what needs no script");
    let (before, after) = rest.split_once(DATA).expect("the page has a place for its data");
    let mut html = String::with_capacity(SHELL.len() + columns.iter().map(String::len).sum::<usize>());
    html.push_str(policy);
    html.push_str(connect(hosting));
    html.push_str(meta);
    if let Hosting::Server { version } = hosting {
        let _ = writeln!(html, "<meta name=\"floodmark-serve\" content=\"{version}\">");
    }
    html.push_str(head);
    html.push_str(&encode::text(&document.source));
    html.push_str(middle);
    html.push_str(&without_script(document));
    html.push_str(before);
    let json = encode::json(document);
    let _ = writeln!(html, "<script type=\"application/json\" id=\"floodmark-data\">{json}</script>");
    for (at, column) in columns.iter().enumerate() {
        let _ = writeln!(
            html,
            "<script type=\"application/octet-stream\" id=\"floodmark-column-{at}\">{column}</script>"
        );
    }
    html.push_str(after);
    html
}

fn without_script(document: &Document) -> String {
    let mut html = String::new();
    let _ = write!(html, "<h1>{}</h1>", encode::text(&document.source));
    for sentence in &document.story {
        let text: String = sentence.parts.iter().map(|part| part.text.as_str()).collect();
        let _ = write!(html, "<p>{}</p>", encode::text(&text));
    }
    if !document.findings.is_empty() {
        html.push_str("<ul>");
        for finding in &document.findings {
            let _ = write!(html, "<li>{}</li>", encode::text(&finding.text));
        }
        html.push_str("</ul>");
    }
    for table in &document.tables {
        static_table(&mut html, table);
    }
    html
}

fn static_table(html: &mut String, table: &Table) {
    let _ = write!(html, "<table><caption>{}</caption><thead><tr>", encode::text(&table.title));
    for head in &table.columns {
        let _ = write!(html, "<th scope=\"col\">{}</th>", encode::text(head.name));
    }
    html.push_str("</tr></thead><tbody>");
    for row in table.rows.iter().take(STATIC_ROWS) {
        html.push_str("<tr>");
        for (cell, head) in row.iter().zip(&table.columns) {
            let _ = write!(html, "<td>{}</td>", encode::text(&cell_text(cell, head.kind)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    let more = table.rows.len().saturating_sub(STATIC_ROWS) as u64 + table.omitted;
    if more > 0 {
        let _ = write!(html, "<p>… and {} more.</p>", format_count(more));
    }
}

fn cell_text(cell: &Cell, kind: CellKind) -> String {
    match (cell, kind) {
        (Cell::Nothing(()), _) => "-".into(),
        (Cell::Text(text), _) => text.clone(),
        (Cell::Real(share), _) => percent(*share),
        (Cell::Whole(bytes), CellKind::Bytes) => format_bytes(*bytes),
        (Cell::Whole(ns), CellKind::Duration) => format_duration_ns(*ns),
        (Cell::Whole(number), CellKind::Number) => number.to_string(),
        (Cell::Whole(count), _) => format_count(*count),
        (Cell::Signed(bytes), CellKind::Bytes) => format_signed_bytes(*bytes),
        (Cell::Signed(ns), CellKind::Time) => format_elapsed_ns(*ns),
        (Cell::Signed(number), _) => number.to_string(),
    }
}
