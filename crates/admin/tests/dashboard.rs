//! The dashboard for Grafana asks for nothing that there is not.

use std::collections::BTreeMap;

use serde_json::Value;
use switchback_admin::metrics::samples;

const DASHBOARD: &str = include_str!("../../../packaging/grafana/switchback.json");
/// What Prometheus adds to every sample, and the bounds of buckets.
const ADDED: [&str; 4] = ["instance", "job", "__name__", "le"];
/// What an expression has besides metrics and labels.
const LANGUAGE: [&str; 9] =
    ["sum", "max", "count", "by", "rate", "or", "vector", "histogram_quantile", "label_values"];

/// The words of an expression, without what is in quotes, numbers, times and variables.
fn words(expression: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_$".contains(letter);
    let outside = expression.split('"').step_by(2);
    let words = outside.flat_map(|part| part.split(move |letter| !is_part(letter)));
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')).collect()
}

/// All that an expression names is exposed, and has the labels by which it is chosen and grouped.
fn check(expression: &str, known: &BTreeMap<String, &[&str]>) -> Result<(), String> {
    let is_metric = |word: &&str| word.starts_with("switchback_") || word.starts_with("process_");
    let (metrics, others): (Vec<_>, Vec<_>) = words(expression).into_iter().partition(is_metric);
    let labels = metrics.iter().map(|name| known.get(*name).ok_or(format!("there is no {name}")));
    let labels = labels.collect::<Result<Vec<_>, _>>()?;
    let family = expression.split_once("__name__=~\"").and_then(|(_, rest)| rest.split_once('.'));
    let is_known = |prefix: &str| known.keys().any(|name| name.starts_with(prefix));
    if metrics.is_empty() && !family.is_some_and(|(prefix, _)| is_known(prefix)) {
        return Err("it is about nothing".to_owned());
    }
    for word in others.into_iter().filter(|word| !LANGUAGE.contains(word) && !ADDED.contains(word)) {
        if !labels.iter().any(|labels| labels.contains(&word)) {
            return Err(format!("none of its metrics has {word}"));
        }
    }
    Ok(())
}

fn known() -> BTreeMap<String, &'static [&'static str]> {
    samples().into_iter().collect()
}

/// Everything in the dashboard that is an expression, with where it is.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push((
                panel["title"].to_string(),
                target["expr"].as_str().expect("an expression").to_owned(),
            ));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        let query = variable["query"]["query"].as_str();
        all.extend(query.map(|query| (variable["name"].to_string(), query.to_owned())));
    }
    all
}

#[test]
fn every_metric_that_it_names_is_exposed() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let (known, all) = (known(), expressions(&dashboard));
    assert!(all.len() > 30, "{} expressions", all.len());
    let wrong = all.iter().filter_map(|(place, expression)| {
        check(expression, &known).err().map(|error| format!("{place}: {error}: {expression}"))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

/// A counter is asked for its rate, and nothing else is.
#[test]
fn rates_are_those_of_counters() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for (place, expression) in expressions(&dashboard) {
        for (at, _) in expression.match_indices("switchback_").chain(expression.match_indices("process_")) {
            let rest = &expression[at..];
            let name = &rest[..rest.find(['{', ',', ')', ' ']).unwrap_or(rest.len())];
            if known().contains_key(name) {
                let rises = ["_total", "_bucket"].iter().any(|end| name.ends_with(end));
                assert_eq!(expression[..at].ends_with("rate("), rises, "{place}: {expression}");
            }
        }
    }
}

#[test]
fn panels_are_told_apart_and_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert_eq!(ids.insert(panel["id"].as_u64(), title), None, "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{title}");
        for place in (x..x + w).flat_map(|column| (y..y + h).map(move |row| (column, row))) {
            assert_eq!(taken.insert(place, title), None, "{title}");
        }
        if panel["type"] != "row" {
            assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title}");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
        }
    }
}

/// A check that takes everything would be none.
#[test]
fn mistakes_are_found() {
    let known = known();
    assert_eq!(check("sum by (node) (rate(switchback_responses_total{code=\"5xx\"}[1m]))", &known), Ok(()));
    for wrong in [
        "switchback_responses",
        "sum by (path) (switchback_responses_total)",
        "switchback_requests_total{node=\"n1\"}",
        "vector(0)",
    ] {
        assert!(check(wrong, &known).is_err(), "{wrong}");
    }
}
