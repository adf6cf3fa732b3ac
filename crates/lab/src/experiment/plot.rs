//! Plots of experiments: lines over an axis, ours solid, a paper's dashed.

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

use super::report::thousands;
use crate::error::{Error, Result};

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
pub(super) const COLORS: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];

/// A line of the plot.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) color: RGBColor,
    /// A paper's; ours are not.
    pub(super) dashed: bool,
    pub(super) points: Vec<(u32, f64)>,
}

/// What to draw.
pub struct Plot {
    pub(super) x_title: &'static str,
    pub(super) y_title: &'static str,
    /// Room left and right of the points.
    pub(super) margin: u32,
    pub(super) curves: Vec<Curve>,
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

impl Plot {
    /// As SVG.
    pub(super) fn svg(&self) -> Result<String> {
        register_font()?;
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area()).map_err(undrawn)?;
        Ok(text)
    }

    /// Writes it as PNG.
    pub(super) fn png(&self, path: &Path) -> Result<()> {
        register_font()?;
        self.draw(BitMapBackend::new(path, SIZE).into_drawing_area()).map_err(undrawn)
    }

    fn draw<B: DrawingBackend>(
        &self,
        root: DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let Plot { x_title, y_title, margin, curves } = self;
        root.fill(&WHITE)?;
        let (chart, legend) = root.split_horizontally(CHART_WIDTH);
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let least = points().map(|(x, _)| *x).min().unwrap_or(0);
        let most = points().map(|(x, _)| *x).max().unwrap_or(1);
        let longest = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let mut axes = ChartBuilder::on(&chart)
            .margin(15)
            .x_label_area_size(50)
            .y_label_area_size(60)
            .build_cartesian_2d(least.saturating_sub(*margin)..most + margin, 0.0..longest * 1.1)?;
        axes.configure_mesh()
            .x_desc(*x_title)
            .y_desc(*y_title)
            .x_labels(9)
            .y_labels(8)
            .x_label_formatter(&|x| if *x < 1000 { x.to_string() } else { thousands((*x).into()) })
            .y_label_formatter(&|value| {
                if longest < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
            })
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
}

fn undrawn(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("draw the plot: {error}"))
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
