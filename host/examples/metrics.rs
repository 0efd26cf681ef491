//! Prints a page of metrics: a counter with a label, and the metrics of this process.
//!
//! ```sh
//! cargo run -p revstore-host --example metrics
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use revstore_host::metrics::{
    Exposition,
    prometheus::{IntCounterVec, Opts, Result},
};

fn main() -> Result<()> {
    let options = Opts::new("requests_total", "Requests by result.");
    let requests = IntCounterVec::new(options, &["result"])?;
    requests.with_label_values(&["ok"]).inc_by(3);
    requests.with_label_values(&["error"]).inc();

    let mut page = Exposition::new();
    page.info("build_info", "Version of the program.", "version", "1.0.0")?;
    page.add(&requests);
    page.process()?;
    print!("{}", page.encode()?);
    Ok(())
}
