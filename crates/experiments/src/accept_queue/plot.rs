//! A plot of the average connection time over the number of connections, with the paper's two curves.

use switchback_plot::{COLORS, Curve, Lines, Plot};

use super::{Dispatch, PAPER, Results};

/// The index of the dispatcher's color, the same in every plot.
fn place(dispatch: Dispatch) -> usize {
    match dispatch {
        Dispatch::Nftables => 0,
        Dispatch::BlindRandom => 1,
        Dispatch::Random => 2,
        Dispatch::Fill => 3,
        Dispatch::AcceptQueue => 4,
    }
}

pub(super) fn plot(results: &Results) -> Plot {
    Plot::Lines(Lines {
        title: "Connection time by the policy that chooses a node".to_owned(),
        x_title: "connections in one load",
        y_title: "average connection time (ms)",
        is_logarithmic: false,
        margin: 500,
        curves: curves(results),
    })
}

fn curves(results: &Results) -> Vec<Curve> {
    let ours = Dispatch::ALL.map(|dispatch| Curve {
        name: dispatch.to_string(),
        color: COLORS[place(dispatch)],
        dashed: false,
        points: results
            .connections()
            .into_iter()
            .filter_map(|count| Some((count, results.average_ms(count, dispatch)?.median)))
            .collect(),
    });
    let paper = |name: &str, dispatch, value: fn(&super::PaperRow) -> f64| Curve {
        name: name.to_owned(),
        color: COLORS[place(dispatch)],
        dashed: true,
        points: PAPER.iter().map(|row| (row.connections, value(row))).collect(),
    };
    let paper = [
        paper("paper: random", Dispatch::Nftables, |row| row.random_ms),
        paper("paper: proposed", Dispatch::Fill, |row| row.proposed_ms),
    ];
    ours.into_iter().chain(paper).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::results;
    use super::*;

    #[test]
    fn the_plot_names_axes_and_curves() {
        let svg = plot(&results()).svg().expect("nothing but text is written");
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
        let drawn = plot(&results()).png(&path);
        let bytes = std::fs::read(&path).unwrap_or_default();
        std::fs::remove_dir_all(&directory).expect("our own directory");
        drawn.expect("the directory can be written to");
        assert!(bytes.starts_with(b"\x89PNG"));
    }
}
