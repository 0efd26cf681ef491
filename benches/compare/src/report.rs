//! Medians of all runs, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::scenario::{Measured, SCENARIOS, Scenario, Target, Unit};
use crate::server::Kind;

/// Columns, as far as there is something in them.
const SERVERS: [&str; 5] = ["etcd", "mem_etcd", "null", "before", "revstore"];

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// By the names of scenario and server.
    runs: BTreeMap<(&'static str, &'static str), Vec<Measured>>,
}

impl Report {
    pub(crate) fn add(&mut self, scenario: &Scenario, kind: &Kind, measured: Measured) {
        let runs = self.runs.entry((scenario.name, kind.name())).or_default();
        runs.push(measured);
    }

    /// Servers of which something is known, in the order of [`SERVERS`].
    pub(crate) fn servers(&self) -> Vec<&'static str> {
        let known = |name: &str| self.runs.keys().any(|(_, server)| *server == name);
        SERVERS.into_iter().filter(|name| known(name)).collect()
    }

    /// Scenarios of which something is known.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        SCENARIOS
            .iter()
            .filter(|it| self.runs.keys().any(|(name, _)| *name == it.name))
    }

    /// The median of all runs in the scenario's unit.
    pub(crate) fn value(&self, scenario: &str, server: &str) -> Option<f64> {
        self.median_of(scenario, server, |run| run.value)
    }

    fn median_of(
        &self,
        scenario: &str,
        server: &str,
        of: impl Fn(&Measured) -> f64,
    ) -> Option<f64> {
        let runs = self.runs.iter();
        let mut values: Vec<f64> = runs
            .filter(|((name, by), _)| *name == scenario && *by == server)
            .flat_map(|(_, runs)| runs.iter().map(&of))
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// What revstore is held to, in the scenario's unit.
    fn limit(&self, scenario: &Scenario) -> Option<f64> {
        match scenario.target {
            Target::OfNull(times) => Some(times * self.value(scenario.name, "null")?),
            Target::OfGet(times) => Some(times * self.value("get", "revstore")?),
            Target::Value(value) => Some(value),
        }
    }

    /// Two tables: what the server spends, and what the client sees.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_costs(&mut text);
        let _ = self.write_latencies(&mut text);
        text
    }

    fn write_head(&self, text: &mut String, more: &str) -> std::fmt::Result {
        let servers = self.servers();
        writeln!(text, "| load | {} |{more}", servers.join(" | "))?;
        let columns = 1 + servers.len() + more.matches('|').count();
        writeln!(text, "|{}", "---|".repeat(columns))
    }

    fn write_costs(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "Server CPU time, microseconds for each operation or event; medians.\n"
        )?;
        self.write_head(text, " revstore / null | at most | |")?;
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
            "\nOperations or events a second; latency of requests, median / 99th percentile in \
             milliseconds.\n"
        )?;
        self.write_head(text, "")?;
        for scenario in self.scenarios() {
            write!(text, "| {} |", scenario.name)?;
            for server in self.servers() {
                let of = |of: fn(&Measured) -> f64| self.median_of(scenario.name, server, of);
                let rate = of(|run| run.rate);
                let median = of(|run| milliseconds(run.median));
                let slow = of(|run| milliseconds(run.slow));
                match (rate, median, slow) {
                    (Some(rate), Some(median), Some(slow)) => {
                        write!(text, " {rate:.0}; {median:.2} / {slow:.2} |")?;
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
    fn medians_stand_beside_their_limits() {
        let mut report = Report::default();
        let get = SCENARIOS.iter().find(|it| it.name == "get").unwrap();
        let mut add = |kind: &Kind, values: [f64; 3]| {
            for value in values {
                let measured = Measured {
                    value,
                    rate: 1000.0,
                    median: Duration::from_millis(1),
                    slow: Duration::from_millis(2),
                };
                report.add(get, kind, measured);
            }
        };
        add(&Kind::Null, [10.0, 90.0, 20.0]);
        add(&Kind::Revstore("revstore".into()), [22.0, 1.0, 25.0]);
        let text = report.markdown();
        assert!(
            text.contains("| load | null | revstore | revstore / null | at most | |\n"),
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
