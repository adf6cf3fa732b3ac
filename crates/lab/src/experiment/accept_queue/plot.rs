//! The average connection time over the number of connections, with the paper's two curves.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Text};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{BLACK, Color, FontStyle, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::{Dispatch, PAPER, Results};
use crate::error::{Error, Result};
use crate::experiment::report::thousands;

const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
const FAMILY: &str = "sans-serif";
const SIZE: (u32, u32) = (900, 480);
/// Of it the part for the axes; the legend has the rest.
const CHART_WIDTH: u32 = 660;
const TEXT_SIZE: i32 = 15;
const LINE_WIDTH: u32 = 2;
/// Length of a dash and of the gap after it, in pixels.
const DASH: (i32, i32) = (6, 4);
const LEGEND_LINE: i32 = 28;

/// Distinct in print and for those who do not see red and green apart (Okabe and Ito's palette).
fn color(dispatch: Dispatch) -> RGBColor {
    match dispatch {
        Dispatch::Nftables => RGBColor(213, 94, 0),
        Dispatch::BlindRandom => RGBColor(204, 121, 167),
        Dispatch::Random => RGBColor(230, 159, 0),
        Dispatch::Fill => RGBColor(0, 114, 178),
        Dispatch::AcceptQueue => RGBColor(0, 158, 115),
    }
}

/// A line of the plot: connections and milliseconds.
struct Curve {
    name: String,
    color: RGBColor,
    /// The paper's; ours are not.
    dashed: bool,
    points: Vec<(u32, f64)>,
}

/// Makes the font known that measures and draws the text. An error if it is not installed.
pub(super) fn register_font() -> Result<()> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let missing = |_| Error::NotFound(format!("the plot needs {FONT}, of the package fonts-dejavu-core"));
    if BYTES.get().is_none() {
        let _ = BYTES.set(fs::read(FONT).map_err(missing)?);
    }
    let bytes = BYTES.get().expect("it has just been set");
    plotters::style::register_font(FAMILY, FontStyle::Normal, bytes)
        .map_err(|_| Error::Invalid(format!("{FONT} is not a font")))
}

impl Results {
    /// The plot as SVG.
    pub fn plot_svg(&self) -> Result<String> {
        register_font()?;
        let mut text = String::new();
        draw(&self.curves(), SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
            .map_err(undrawn)?;
        Ok(text)
    }

    /// Writes the plot as PNG.
    pub fn plot_png(&self, path: &Path) -> Result<()> {
        register_font()?;
        draw(&self.curves(), BitMapBackend::new(path, SIZE).into_drawing_area()).map_err(undrawn)
    }

    fn curves(&self) -> Vec<Curve> {
        let ours = Dispatch::ALL.map(|dispatch| Curve {
            name: dispatch.to_string(),
            color: color(dispatch),
            dashed: false,
            points: self
                .connections()
                .into_iter()
                .filter_map(|count| Some((count, self.average_ms(count, dispatch)?.median)))
                .collect(),
        });
        let paper = |name: &str, dispatch, value: fn(&super::PaperRow) -> f64| Curve {
            name: name.to_owned(),
            color: color(dispatch),
            dashed: true,
            points: PAPER.iter().map(|row| (row.connections, value(row))).collect(),
        };
        let paper = [
            paper("paper: random", Dispatch::Nftables, |row| row.random_ms),
            paper("paper: proposed", Dispatch::Fill, |row| row.proposed_ms),
        ];
        ours.into_iter().chain(paper).collect()
    }
}

fn undrawn(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("draw the plot: {error}"))
}

fn draw<B: DrawingBackend>(
    curves: &[Curve],
    root: DrawingArea<B, Shift>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    root.fill(&WHITE)?;
    let (chart, legend) = root.split_horizontally(CHART_WIDTH);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let least = points().map(|(count, _)| *count).min().unwrap_or(0);
    let most = points().map(|(count, _)| *count).max().unwrap_or(1);
    let longest = points().map(|(_, ms)| *ms).fold(0.0, f64::max);
    let mut axes = ChartBuilder::on(&chart)
        .margin(15)
        .x_label_area_size(50)
        .y_label_area_size(60)
        .build_cartesian_2d(least.saturating_sub(500)..most + 500, 0.0..longest * 1.1)?;
    axes.configure_mesh()
        .x_desc("connections in one load")
        .y_desc("average connection time (ms)")
        .x_labels(9)
        .y_labels(8)
        .x_label_formatter(&|count| thousands((*count).into()))
        .y_label_formatter(&|ms| format!("{ms:.0}"))
        .label_style((FAMILY, TEXT_SIZE))
        .axis_desc_style((FAMILY, TEXT_SIZE))
        .light_line_style(WHITE)
        .draw()?;
    for curve in curves {
        let (line, points) = (curve.color.stroke_width(LINE_WIDTH), curve.points.iter().copied());
        if curve.dashed {
            axes.draw_series(DashedLineSeries::new(points, DASH.0, DASH.1, line))?;
        } else {
            axes.draw_series(LineSeries::new(points, line))?;
        }
        let dots = curve.points.iter().map(|point| Circle::new(*point, 3, curve.color.filled()));
        axes.draw_series(dots)?;
    }
    for (index, curve) in (0..).zip(curves) {
        draw_legend(&legend, curve, 30 + index * LEGEND_LINE)?;
    }
    root.present()
}

fn draw_legend<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    curve: &Curve,
    y: i32,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let line: ShapeStyle = curve.color.stroke_width(LINE_WIDTH);
    let dashes = if curve.dashed { vec![(0, 8), (11, 19), (22, 30)] } else { vec![(0, 30)] };
    for (from, to) in dashes {
        area.draw(&PathElement::new([(from, y), (to, y)], line))?;
    }
    area.draw(&Circle::new((15, y), 3, curve.color.filled()))?;
    let style = TextStyle::from((FAMILY, TEXT_SIZE)).color(&BLACK);
    area.draw(&Text::new(curve.name.clone(), (40, y - TEXT_SIZE / 2), style))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::results;

    #[test]
    fn the_plot_names_axes_and_curves() {
        let svg = results().plot_svg().expect("nothing but text is written");
        let wanted =
            ["average connection time (ms)", "connections in one load", "paper: proposed", "fill", "16,000"];
        for text in wanted {
            assert!(svg.contains(&format!(">\n{text}\n<")), "no {text:?} in {svg}");
        }
    }

    #[test]
    fn the_picture_is_a_png() {
        let directory = std::env::temp_dir().join(format!("switchback-plot-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a new directory");
        let path = directory.join("plot.png");
        let drawn = results().plot_png(&path);
        let bytes = std::fs::read(&path).unwrap_or_default();
        std::fs::remove_dir_all(&directory).expect("our own directory");
        drawn.expect("the directory can be written to");
        assert!(bytes.starts_with(b"\x89PNG"));
    }
}
