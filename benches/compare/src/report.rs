//! Medians of all runs as Markdown tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::scenario::{Measurement, SCENARIOS, Scenario, TargetValue, Unit};
use crate::server::ServerKind;

/// The columns. A server that was not measured has none.
const SERVERS: [&str; 5] = ["etcd", "mem_etcd", "null", "before", "revstore"];

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The measurements of all runs, by the names of scenario and server.
    runs: BTreeMap<(&'static str, &'static str), Vec<Measurement>>,
}

impl Report {
    pub(crate) fn add(&mut self, scenario: &Scenario, kind: &ServerKind, measured: Measurement) {
        let runs = self.runs.entry((scenario.name, kind.name())).or_default();
        runs.push(measured);
    }

    /// Returns the measured servers in the order of [`SERVERS`].
    pub(crate) fn servers(&self) -> Vec<&'static str> {
        let measured = |name: &str| self.runs.keys().any(|(_, server)| *server == name);
        SERVERS.into_iter().filter(|name| measured(name)).collect()
    }

    /// Returns the measured scenarios.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        SCENARIOS
            .iter()
            .filter(|it| self.runs.keys().any(|(name, _)| *name == it.name))
    }

    /// Returns the median of all runs, in the unit of the scenario.
    pub(crate) fn value(&self, scenario: &str, server: &str) -> Option<f64> {
        self.median_of(scenario, server, |run| run.value)
    }

    fn median_of(
        &self,
        scenario: &str,
        server: &str,
        of: impl Fn(&Measurement) -> f64,
    ) -> Option<f64> {
        let runs = self.runs.iter();
        let mut values: Vec<f64> = runs
            .filter(|((name, by), _)| *name == scenario && *by == server)
            .flat_map(|(_, runs)| runs.iter().map(&of))
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// Returns the target for revstore, in the unit of the scenario.
    fn limit(&self, scenario: &Scenario) -> Option<f64> {
        match scenario.target {
            TargetValue::OfNull(times) => Some(times * self.value(scenario.name, "null")?),
            TargetValue::OfGet(times) => Some(times * self.value("get", "revstore")?),
            TargetValue::Value(value) => Some(value),
        }
    }

    /// Returns two tables: the CPU time of the servers, and rates and latencies at the client.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` does not fail.
        let _ = self.write_costs(&mut text);
        let _ = self.write_latencies(&mut text);
        text
    }

    fn write_head(&self, text: &mut String, more_columns: &str) -> std::fmt::Result {
        let servers = self.servers();
        writeln!(text, "| load | {} |{more_columns}", servers.join(" | "))?;
        let columns = 1 + servers.len() + more_columns.matches('|').count();
        writeln!(text, "|{}", "---|".repeat(columns))
    }

    fn write_costs(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "Server CPU time in microseconds per operation or event; medians.\n"
        )?;
        self.write_head(text, " revstore / null | limit | |")?;
        for scenario in self.scenarios() {
            write!(text, "| {} |", scenario.name)?;
            for server in self.servers() {
                write!(text, " {} |", self.cell(scenario, server))?;
            }
            let ours = self.value(scenario.name, "revstore");
            let null = self.value(scenario.name, "null");
            match ours.zip(null) {
                Some((ours, null)) if null > 0.0 => write!(text, " {:.2} |", ours / null)?,
                _ => write!(text, " |")?,
            }
            match ours.zip(self.limit(scenario)) {
                Some((ours, limit)) => {
                    let verdict = if ours <= limit { "met" } else { "missed" };
                    let limit = number(scenario.unit, limit);
                    writeln!(text, " {limit} | {verdict} |")?;
                }
                None => writeln!(text, " | |")?,
            }
        }
        Ok(())
    }

    fn cell(&self, scenario: &Scenario, server: &str) -> String {
        let value = self.value(scenario.name, server);
        value.map_or_else(String::new, |value| number(scenario.unit, value))
    }

    fn write_latencies(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\nOperations or events per second; latency of requests, median / 99th percentile in \
             milliseconds.\n"
        )?;
        self.write_head(text, "")?;
        for scenario in self.scenarios() {
            write!(text, "| {} |", scenario.name)?;
            for server in self.servers() {
                let of = |of: fn(&Measurement) -> f64| self.median_of(scenario.name, server, of);
                let rate = of(|run| run.rate);
                let median = of(|run| milliseconds(run.median));
                let p99 = of(|run| milliseconds(run.p99));
                match (rate, median, p99) {
                    (Some(rate), Some(median), Some(p99)) => {
                        write!(text, " {rate:.0}; {median:.2} / {p99:.2} |")?;
                    }
                    _ => write!(text, " |")?,
                }
            }
            writeln!(text)?;
        }
        Ok(())
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn number(unit: Unit, value: f64) -> String {
    match unit {
        Unit::CpuMicroseconds if value >= 100.0 => format!("{value:.0}"),
        Unit::CpuMicroseconds => format!("{value:.1}"),
        Unit::Times => format!("{value:.1} x"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_medians_and_limits() {
        let mut report = Report::default();
        let get = SCENARIOS.iter().find(|it| it.name == "get").unwrap();
        let mut add = |kind: &ServerKind, values: [f64; 3]| {
            for value in values {
                let measured = Measurement {
                    value,
                    rate: 1000.0,
                    median: Duration::from_millis(1),
                    p99: Duration::from_millis(2),
                };
                report.add(get, kind, measured);
            }
        };
        add(&ServerKind::Null, [10.0, 90.0, 20.0]);
        add(&ServerKind::Revstore("revstore".into()), [22.0, 1.0, 25.0]);
        let text = report.markdown();
        assert!(
            text.contains("| load | null | revstore | revstore / null | limit | |\n"),
            "{text}"
        );
        assert!(
            text.contains("| get | 20.0 | 22.0 | 1.10 | 23.0 | met |\n"),
            "{text}"
        );
        assert!(
            text.contains("| get | 1000; 1.00 / 2.00 | 1000; 1.00 / 2.00 |\n"),
            "{text}"
        );
    }
}
