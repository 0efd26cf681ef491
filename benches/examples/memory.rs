//! The resident memory of stores of several sizes, each measured in its own process:
//! `cargo run --release -p revstore-benches --example memory`.
//!
//! The program reads `/proc` and therefore needs Linux.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::process::Command;

use revstore_benches::{key, value};
use revstore_engine::{Engine, ManualClock};

/// The orders in which keys are written.
const ORDERS: [&str; 2] = ["in order", "shuffled"];

type BoxError = Box<dyn Error>;

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => report(),
        [order, keys, revisions, compact] => {
            let bytes = measure(
                order,
                keys.parse()?,
                revisions.parse()?,
                compact == "compacted",
            )?;
            Ok(writeln!(io::stdout(), "{bytes}")?)
        }
        _ => Err("no arguments are expected".into()),
    }
}

/// Measures all stores and prints a report.
fn report() -> Result<(), BoxError> {
    let mut out = io::stdout();
    writeln!(
        out,
        "keys of {} bytes, values of {}",
        key(0).len(),
        value().len()
    )?;
    for order in ORDERS {
        writeln!(out, "written {order}:")?;
        let of = |keys, revisions| measure_in_process(order, keys, revisions, "kept");
        let million = of(1_000_000, 1)?;
        let per_key = million / 1_000_000;
        writeln!(out, "  1 M keys: {per_key} bytes per key")?;
        let hundred = of(100_000, 1)?;
        for revisions in [2, 3, 5, 20] {
            let further = (of(100_000, revisions)? - hundred) / (100_000 * (revisions - 1));
            writeln!(
                out,
                "  100 k keys, {revisions} revisions: {further} bytes per additional revision"
            )?;
        }
        let compacted = measure_in_process(order, 100_000, 20, "compacted")?;
        let percent = compacted * 100 / hundred;
        writeln!(
            out,
            "  20 revisions compacted to one: {percent} % of 100 k keys with one"
        )?;
    }
    Ok(())
}

fn measure_in_process(
    order: &str,
    keys: u64,
    revisions: u64,
    compact: &str,
) -> Result<u64, BoxError> {
    let (keys, revisions) = (keys.to_string(), revisions.to_string());
    let run = Command::new(env::current_exe()?)
        .args([order, &keys, &revisions, compact])
        .output()?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into());
    }
    Ok(String::from_utf8(run.stdout)?.trim().parse()?)
}

/// Fills a store and returns the growth of the resident memory in bytes.
fn measure(order: &str, keys: u64, revisions: u64, compact: bool) -> Result<u64, BoxError> {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    let before = resident_bytes()?;
    for _ in 0..revisions {
        // Modulo a power of two, multiplication by an odd factor is a permutation.
        let bound = keys.next_power_of_two();
        let factor = if order == ORDERS[0] { 1 } else { 2_654_435_761 };
        for number in (0..bound).map(|number| number.wrapping_mul(factor) % bound) {
            if number < keys {
                engine.put(key(number), value())?;
            }
        }
    }
    if compact {
        engine.compact(engine.current_revision())?.run();
    }
    assert_eq!(engine.stats().keys as u64, keys);
    Ok(resident_bytes()?.saturating_sub(before))
}

fn resident_bytes() -> Result<u64, BoxError> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no VmRSS")?.trim().parse::<u64>()? * 1024)
}
