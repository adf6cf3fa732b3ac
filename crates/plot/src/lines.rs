//! Lines over an axis, ours solid, a paper's dashed.
//!
//! Curves often coincide, and the one that is drawn last would hide the others. So a curve under others is wider, by a
//! step for each of them, and pale: it shows on both sides of what lies on it. Each curve has markers of its own, too.

use plotters::backend::DrawingBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, Cross, DynElement, IntoDynElement, PathElement, Text, TriangleMarker};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{BLACK, Color, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::style::{FAMILY, TEXT_SIZE, TITLE_SIZE, thousands};

pub(super) const SIZE: (u32, u32) = (900, 500);
/// Of it the part for the axes; the legend has the rest.
const CHART_WIDTH: u32 = 660;
const LINE_WIDTH: u32 = 2;
/// By so much a curve is wider for each one that lies on it, and so opaque it is then.
const WIDER: u32 = 4;
const PALE: f64 = 0.45;
/// Curves whose distance is below this part of the axis lie on each other.
const CLOSE: f64 = 0.012;
/// A curve of more points is a course of time, and has no markers but that of the legend.
const MARKED: usize = 60;
/// Length of a dash and of the gap after it, in pixels.
const DASH: (i32, i32) = (6, 4);
const LEGEND_LINE: i32 = 28;
/// Of the first line of the legend.
const LEGEND_TOP: i32 = 50;
/// Steps of a logarithmic axis in each power of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

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
    /// Above the plot.
    pub title: String,
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
        let (lowest, highest) = self.heights();
        if self.is_logarithmic {
            let (bottom, top) = (lowest / 1.5, highest * 1.5);
            let decades = bottom.log10().floor() as i32..=top.log10().ceil() as i32;
            let steps = decades.flat_map(|power| STEPS.map(|step| step * 10f64.powi(power)));
            let steps = steps.filter(|step| (bottom..top).contains(step)).collect::<Vec<_>>();
            self.draw_over(root, (bottom..top).log_scale().with_key_points(steps))
        } else {
            self.draw_over(root, 0.0..highest * 1.1)
        }
    }

    /// The least and the greatest value.
    fn heights(&self) -> (f64, f64) {
        let heights = || self.points().map(|(_, y)| *y);
        let highest = heights().fold(0.0, f64::max);
        (heights().fold(highest, f64::min), highest)
    }

    fn points(&self) -> impl Iterator<Item = &(u32, f64)> {
        self.curves.iter().flat_map(|curve| &curve.points)
    }

    /// For each curve the number of later ones that lie on it.
    fn covers(&self) -> Vec<usize> {
        let (lowest, highest) = self.heights();
        let place = |y: f64| {
            if self.is_logarithmic { (y / lowest).ln() / (highest / lowest).ln() } else { y / highest }
        };
        let is_near = |curve: &Curve, (x, y): (u32, f64)| {
            curve.at(x).is_some_and(|other| (place(other) - place(y)).abs() < CLOSE)
        };
        let half_is_near = |one: &Curve, other: &Curve| {
            2 * one.points.iter().filter(|point| is_near(other, **point)).count() >= one.points.len()
        };
        let lies_on = |above: &Curve, below: &Curve| half_is_near(above, below) || half_is_near(below, above);
        let curves = self.curves.iter().enumerate();
        let covers = curves.map(|(index, below)| {
            self.curves[index + 1..].iter().filter(|above| lies_on(above, below)).count()
        });
        covers.collect()
    }

    fn draw_over<B: DrawingBackend, Y: AsRangedCoord<Value = f64>>(
        &self,
        root: &DrawingArea<B, Shift>,
        heights: Y,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
    where
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let Lines { title, x_title, y_title, margin, curves, .. } = self;
        let highest = self.heights().1;
        let (chart, legend) = root.titled(title, (FAMILY, TITLE_SIZE))?.split_horizontally(CHART_WIDTH);
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
        let covers = self.covers();
        for (index, (curve, covers)) in curves.iter().zip(&covers).enumerate() {
            let (line, points) = (curve.style(*covers), curve.points.iter().copied());
            if curve.dashed {
                axes.draw_series(DashedLineSeries::new(points, DASH.0, DASH.1, line))?;
            } else {
                axes.draw_series(LineSeries::new(points, line))?;
            }
            let marked = if curve.points.len() > MARKED { &[][..] } else { &curve.points };
            axes.draw_series(marked.iter().map(|point| marker(index, *point, line)))?;
        }
        for (index, (curve, covers)) in curves.iter().zip(&covers).enumerate() {
            draw_legend(&legend, index, curve, curve.style(*covers))?;
        }
        Ok(())
    }
}

impl Curve {
    /// Its height at a place, between two points on the line that joins them.
    fn at(&self, x: u32) -> Option<f64> {
        let pairs = self.points.windows(2).map(|pair| (pair[0], pair[1]));
        let alone = self.points.first().map(|first| (*first, *first));
        let ((left, low), (right, high)) =
            pairs.chain(alone).find(|((left, _), (right, _))| (*left..=*right).contains(&x))?;
        let part = if right == left { 0.0 } else { f64::from(x - left) / f64::from(right - left) };
        Some(low + part * (high - low))
    }

    fn style(&self, covers: usize) -> ShapeStyle {
        let color = if covers > 0 { self.color.mix(PALE) } else { self.color.to_rgba() };
        color.stroke_width(LINE_WIDTH + covers as u32 * WIDER)
    }
}

/// The mark of a point, of the kind and color of its curve; as large as a line that is wide needs.
fn marker<B: DrawingBackend, P: Clone + 'static>(
    index: usize,
    at: P,
    line: ShapeStyle,
) -> DynElement<'static, B, P>
where
    Circle<P, i32>: IntoDynElement<'static, B, P>,
    TriangleMarker<P, i32>: IntoDynElement<'static, B, P>,
    Cross<P, i32>: IntoDynElement<'static, B, P>,
{
    let size = 4 + (line.stroke_width as i32 - LINE_WIDTH as i32) / 2;
    let (full, hollow) = (line.color.filled(), line.color.stroke_width(LINE_WIDTH));
    match index % 6 {
        0 => Circle::new(at, size, full).into_dyn(),
        1 => TriangleMarker::new(at, size + 1, full).into_dyn(),
        2 => Cross::new(at, size, hollow).into_dyn(),
        3 => Circle::new(at, size, hollow).into_dyn(),
        4 => TriangleMarker::new(at, size + 3, hollow).into_dyn(),
        _ => Cross::new(at, size - 2, hollow).into_dyn(),
    }
}

fn draw_legend<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    index: usize,
    curve: &Curve,
    line: ShapeStyle,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let y = LEGEND_TOP + index as i32 * LEGEND_LINE;
    let dashes = if curve.dashed { vec![(0, 8), (11, 19), (22, 30)] } else { vec![(0, 30)] };
    for (from, to) in dashes {
        area.draw(&PathElement::new([(from, y), (to, y)], line))?;
    }
    area.draw(&marker(index, (15, y), line))?;
    let style = TextStyle::from((FAMILY, TEXT_SIZE)).color(&BLACK);
    area.draw(&Text::new(curve.name.clone(), (40, y - TEXT_SIZE / 2), style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COLORS, Plot};

    fn curve(points: &[(u32, f64)]) -> Curve {
        Curve { name: "a curve".to_owned(), color: COLORS[0], dashed: false, points: points.to_vec() }
    }

    fn lines(is_logarithmic: bool, curves: Vec<Curve>) -> Lines {
        let title = "A title".to_owned();
        Lines { title, x_title: "x, s", y_title: "y, ms", is_logarithmic, margin: 1, curves }
    }

    #[test]
    fn a_curve_under_others_is_wider_and_pale() {
        let same = || curve(&[(0, 10.0), (10, 20.0)]);
        let other = curve(&[(0, 50.0), (10, 90.0)]);
        // On the first two, but for few points of its own.
        let on_both = curve(&[(5, 15.1)]);
        let lines = lines(false, vec![same(), same(), other, on_both]);
        assert_eq!(lines.covers(), [2, 1, 0, 0]);
        let [lowest, highest] = [0, 2].map(|index| lines.curves[index].style(lines.covers()[index]));
        assert_eq!((lowest.stroke_width, highest.stroke_width), (LINE_WIDTH + 2 * WIDER, LINE_WIDTH));
        assert!(lowest.color.alpha() < highest.color.alpha());
    }

    #[test]
    fn a_course_of_time_has_no_markers() {
        let circles = |count: u32| {
            let points: Vec<_> = (0..count).map(|x| (x, f64::from(x + 1))).collect();
            let svg = Plot::Lines(lines(false, vec![curve(&points)])).svg().expect("the font is there");
            svg.matches("<circle").count()
        };
        // With that of the legend.
        assert_eq!([MARKED, MARKED + 1].map(|count| circles(count as u32)), [MARKED + 1, 1]);
    }

    #[test]
    fn a_plot_has_a_title_named_axes_and_several_ticks() {
        let svg =
            Plot::Lines(lines(true, vec![curve(&[(0, 6.0), (10, 150.0)])])).svg().expect("the font is there");
        for text in ["A title", "x, s", "y, ms", "a curve", "5", "10", "20", "50", "100", "200"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text}: {svg}");
        }
    }
}
