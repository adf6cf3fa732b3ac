//! Lines over an axis, ours solid, a paper's dashed.

use plotters::backend::DrawingBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Text};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{BLACK, Color, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::style::{FAMILY, TEXT_SIZE, thousands};

pub(super) const SIZE: (u32, u32) = (900, 480);
/// Of it the part for the axes; the legend has the rest.
const CHART_WIDTH: u32 = 660;
const LINE_WIDTH: u32 = 2;
/// Length of a dash and of the gap after it, in pixels.
const DASH: (i32, i32) = (6, 4);
const LEGEND_LINE: i32 = 28;

/// One of them.
pub struct Curve {
    /// In the legend.
    pub name: String,
    /// One of [`COLORS`](crate::COLORS).
    pub color: RGBColor,
    /// A paper's; ours are not.
    pub dashed: bool,
    /// From left to right.
    pub points: Vec<(u32, f64)>,
}

/// All of them.
pub struct Lines {
    /// With the unit.
    pub x_title: &'static str,
    /// With the unit.
    pub y_title: &'static str,
    /// Each step up is ten times as much.
    pub is_logarithmic: bool,
    /// Room left and right of the points.
    pub margin: u32,
    /// In the order of the legend.
    pub curves: Vec<Curve>,
}

impl Lines {
    pub(super) fn draw<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let heights = || self.points().map(|(_, y)| *y);
        let highest = heights().fold(0.0, f64::max);
        if self.is_logarithmic {
            let lowest = heights().fold(highest, f64::min);
            self.draw_over(root, (lowest / 1.5..highest * 1.5).log_scale(), highest)
        } else {
            self.draw_over(root, 0.0..highest * 1.1, highest)
        }
    }

    fn points(&self) -> impl Iterator<Item = &(u32, f64)> {
        self.curves.iter().flat_map(|curve| &curve.points)
    }

    fn draw_over<B: DrawingBackend, Y: AsRangedCoord<Value = f64>>(
        &self,
        root: &DrawingArea<B, Shift>,
        heights: Y,
        highest: f64,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
    where
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let Lines { x_title, y_title, margin, curves, .. } = self;
        let (chart, legend) = root.split_horizontally(CHART_WIDTH);
        let places = || self.points().map(|(x, _)| *x);
        let (least, most) = (places().min().unwrap_or(0), places().max().unwrap_or(1));
        let mut axes = ChartBuilder::on(&chart)
            .margin(15)
            .x_label_area_size(50)
            .y_label_area_size(75)
            .build_cartesian_2d(least.saturating_sub(*margin)..most + margin, heights)?;
        axes.configure_mesh()
            .x_desc(*x_title)
            .y_desc(*y_title)
            .x_labels(9)
            .y_labels(8)
            .x_label_formatter(&|x| if *x < 1000 { x.to_string() } else { thousands((*x).into()) })
            .y_label_formatter(&|value| match *value {
                value if highest < 10.0 => format!("{value:.1}"),
                value if value < 1000.0 => format!("{value:.0}"),
                value => thousands(value),
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
        Ok(())
    }
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
