//! Reads the text format of OpenMetrics 1.0, and takes nothing that a scraper might not: what is missing, doubled, out of
//! order or badly named is an error. Besides the format's rules these are those of `promtool check metrics`.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with all its samples.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    pub unit: String,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

#[derive(Debug, Default)]
pub struct Metrics {
    pub families: BTreeMap<String, Family>,
}

impl Metrics {
    /// The samples of this name that have at least these labels.
    pub fn samples<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        let all = self.families.values().flat_map(|family| &family.samples);
        all.filter(move |sample| {
            let has = |(label, value): &(&str, &str)| sample.labels.get(*label).is_some_and(|is| is == value);
            sample.name == name && labels.iter().all(has)
        })
    }

    /// Their sum; None if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.samples(name, labels).map(|sample| sample.value).reduce(|sum, value| sum + value)
    }
}

/// The metrics in a text, or what is wrong with it.
pub fn parse(text: &str) -> Result<Metrics, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the last line is not # EOF")?;
    let mut metrics = Metrics::default();
    let mut current = String::new();
    for (index, line) in body.lines().enumerate() {
        let result = match line.strip_prefix("# ") {
            Some(rest) => metadata(&mut metrics, &mut current, rest),
            None => sample(line).and_then(|sample| {
                let family = metrics.families.get_mut(&current).ok_or("a sample before any metric")?;
                fits(&current, family, &sample)?;
                family.samples.push(sample);
                Ok(())
            }),
        };
        result.map_err(|error| format!("line {}: {error}: {line}", index + 1))?;
    }
    for (name, family) in &metrics.families {
        whole(name, family).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(metrics)
}

fn metadata(metrics: &mut Metrics, current: &mut String, line: &str) -> Result<(), String> {
    let mut words = line.splitn(3, ' ');
    let (what, name, rest) = (words.next(), words.next().ok_or("no name")?, words.next().ok_or("no text")?);
    if what == Some("HELP") {
        if metrics.families.contains_key(name) {
            return Err("the metric is there already".to_owned());
        }
        *current = name.to_owned();
        check_name(name)?;
        metrics.families.insert(name.to_owned(), Family::default());
    }
    if name != current {
        return Err(format!("not about {current}"));
    }
    let family = metrics.families.get_mut(name).ok_or("no HELP before it")?;
    if !family.samples.is_empty() || rest.is_empty() || rest.trim() != rest {
        return Err("out of place, or padded".to_owned());
    }
    let place = match what {
        Some("HELP") => &mut family.help,
        Some("TYPE") => &mut family.kind,
        Some("UNIT") if name.ends_with(&format!("_{rest}")) => &mut family.unit,
        _ => return Err("neither HELP nor TYPE nor the UNIT that the name ends in".to_owned()),
    };
    if !place.is_empty() {
        return Err("said twice".to_owned());
    }
    rest.clone_into(place);
    Ok(())
}

/// Base units, no kind in a name, no abbreviation of a unit.
fn check_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) || !name.bytes().all(allowed) {
        return Err("a bad name".to_owned());
    }
    let bad =
        ["ms", "us", "ns", "milliseconds", "microseconds", "minutes", "hours", "kilobytes", "kb", "bits"];
    let bad =
        bad.into_iter().chain(["percent", "permille", "total", "count", "sum", "bucket", "gauge", "counter"]);
    match bad.into_iter().find(|bad| name.split('_').next_back() == Some(*bad)) {
        Some(bad) => Err(format!("a name must not end in {bad}")),
        None => Ok(()),
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let value = value.parse().map_err(|_| format!("{value:?} is no number"))?;
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// Up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, value) = rest.split_once("=\"").ok_or("a label without a value")?;
        check_name(name)?;
        let mut text = String::new();
        let mut letters = value.char_indices();
        let end = loop {
            match letters.next().ok_or("a value without an end")? {
                (at, '"') => break at,
                (_, '\\') => text.push(match letters.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, letter @ ('\\' | '"'))) => letter,
                    _ => return Err("a bad escape".to_owned()),
                }),
                (_, letter) => text.push(letter),
            }
        };
        if labels.insert(name.to_owned(), text).is_some() {
            return Err(format!("label {name} twice"));
        }
        rest = &value[end + 1..];
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        rest = rest.strip_prefix(',').ok_or("no comma between two labels")?;
    }
}

/// A sample has the name that its metric's kind gives it, a value that this kind can have, and is not there yet.
fn fits(name: &str, family: &Family, sample: &Sample) -> Result<(), String> {
    let end = sample.name.strip_prefix(name).ok_or("of another metric")?;
    let ends: &[&str] = match &family.kind[..] {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_sum", "_count"],
        kind => return Err(format!("unknown kind {kind:?}")),
    };
    if !ends.contains(&end) {
        return Err(format!("a {} has no {end:?}", family.kind));
    }
    if (end == "_bucket") != sample.labels.contains_key("le") {
        return Err("le is for buckets".to_owned());
    }
    let is_possible = match end {
        "" => !sample.value.is_nan(),
        "_info" => sample.value == 1.0,
        _ => sample.value >= 0.0 && sample.value.is_finite(),
    };
    if !is_possible {
        return Err("not a value of its kind".to_owned());
    }
    let is_same = |other: &Sample| other.name == sample.name && other.labels == sample.labels;
    if family.samples.iter().any(is_same) { Err("twice".to_owned()) } else { Ok(()) }
}

/// Everything that belongs to a metric is there; the buckets of a histogram are in order and add up.
fn whole(name: &str, family: &Family) -> Result<(), String> {
    if family.kind.is_empty() {
        return Err("no TYPE".to_owned());
    }
    for unit in ["seconds", "bytes", "ratio"] {
        if name.ends_with(&format!("_{unit}")) != (family.unit == unit) {
            return Err(format!("the UNIT is {:?}", family.unit));
        }
    }
    if family.kind != "histogram" {
        return Ok(());
    }
    let series = family.samples.iter().map(|sample| {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        labels
    });
    for labels in series.collect::<BTreeSet<_>>() {
        let of = |end: &str| {
            let full = format!("{name}_{end}");
            let is_of = |sample: &&Sample| {
                let mut its = labels.iter();
                sample.name == full && its.all(|(label, value)| sample.labels.get(label) == Some(value))
            };
            family.samples.iter().filter(is_of).collect::<Vec<_>>()
        };
        let le = |sample: &&Sample| sample.labels["le"].parse::<f64>().unwrap_or(f64::NAN);
        let buckets = of("bucket");
        let rises =
            buckets.windows(2).all(|pair| le(&pair[0]) < le(&pair[1]) && pair[0].value <= pair[1].value);
        let last = buckets.last().ok_or("no bucket")?;
        let (sum, count) = (of("sum"), of("count"));
        if !rises
            || le(last) != f64::INFINITY
            || sum.len() != 1
            || count.len() != 1
            || count[0].value != last.value
        {
            return Err("not a histogram".to_owned());
        }
    }
    Ok(())
}
