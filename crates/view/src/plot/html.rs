//! A scene as a page that stands alone: the SVG, and values of its curves where one points.
//!
//! The page loads nothing and says so to the browser, so that text of a trace could not make it. Without
//! scripts the picture is all the same.

use serde_json::json;

use crate::html::encode;
use crate::plot::model::TimeAxis;
use crate::plot::scene::Scene;
use crate::plot::svg::{element, escape, hex};

const SCRIPT: &str = include_str!("../../assets/plot.js");

/// Writes a scene as an HTML page.
pub fn html(scene: &Scene, axis: TimeAxis) -> String {
    let curves: Vec<_> = scene
        .curves
        .iter()
        .map(|curve| {
            let values: Vec<(f64, u64, u64)> = curve
                .spans
                .iter()
                .map(|span| ((span.x * 10.0).round() / 10.0, span.low, span.high))
                .collect();
            json!({"name": curve.name, "color": hex(curve.color), "values": values, "to": curve.to})
        })
        .collect();
    let data = json!({
        "field": scene.field,
        "times_ms": [scene.times_ns.0 as f64 / 1e6, scene.times_ns.1 as f64 / 1e6],
        "clock": axis == TimeAxis::Clock,
        "curves": curves,
    });
    let data = encode::json(&data);
    let (title, paper) = (escape(&scene.title), hex(scene.paper));
    let is_dark = u32::from(scene.paper.0) + u32::from(scene.paper.1) + u32::from(scene.paper.2) < 384;
    let (ink, edge) = if is_dark { ("#e6eaee", "#4a5560") } else { ("#1c2228", "#b5bec7") };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\nbody {{ margin: 0; background: {paper}; color: {ink}; font: 13px sans-serif; }}\n\
         #picture {{ position: relative; max-width: {width}px; margin: 0 auto; }}\n\
         #picture svg {{ display: block; width: 100%; height: auto; }}\n\
         #values {{ position: absolute; display: none; pointer-events: none; background: {paper}; \
         border: 1px solid {edge}; border-radius: 4px; padding: 4px 8px; white-space: pre; }}\n\
         #line {{ position: absolute; display: none; pointer-events: none; width: 1px; background: {edge}; }}\n\
         </style>\n</head>\n<body>\n<div id=\"picture\">\n{svg}<div id=\"line\"></div><div id=\"values\"></div>\n\
         </div>\n<script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
        width = scene.size.0,
        svg = element(scene),
    )
}
