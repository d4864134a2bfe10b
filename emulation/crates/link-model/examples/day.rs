// SPDX-License-Identifier: Apache-2.0
//! A day on a 64 Mbit/s GEO link that is never idle, in virtual time: what it takes, and whether the last bit leaves
//! when bytes and rate say.
//!
//!     cargo run --release -p atoll-link-model --example day

use atoll_link_model::{Link, LinkSettings, SplitMix64};
use std::process::ExitCode;
use std::time::Instant;

const DAY_NS: u64 = 86_400_000_000_000;

fn main() -> ExitCode {
    let settings = LinkSettings {
        rate_bit_s: 64_000_000,
        delay_ns: 250_000_000,
        queue_bytes: 600_000,
        ..LinkSettings::default()
    };
    let mut link = match Link::new(&settings, SplitMix64::new(1, 0), 0) {
        Ok(link) => link,
        Err(error) => {
            eprintln!("day: {error}");
            return ExitCode::from(2);
        }
    };
    let begin = Instant::now();
    // Trains of ten packets; the queue is never empty, and full at times.
    let mut load = SplitMix64::new(1, 1);
    let (mut now, mut last_ns) = (0, 0);
    while now < DAY_NS {
        for _ in 0..10 {
            let bytes = 40 + load.up_to(1460) as u32;
            link.enqueue(now, bytes, ());
        }
        now += load.up_to(1_700_000);
        while let Some(departure) = link.pop_due(now) {
            last_ns = departure.scheduled_ns;
        }
    }
    while let Some(next_ns) = link.next_departure() {
        while let Some(departure) = link.pop_due(next_ns) {
            last_ns = departure.scheduled_ns;
        }
    }
    let took_s = begin.elapsed().as_secs_f64();

    let totals = link.totals();
    let busy_ns = last_ns - settings.delay_ns - link.idle_ns(last_ns - settings.delay_ns);
    let sending_ns = (u128::from(totals.departed.bytes) * 8_000_000_000)
        .div_ceil(u128::from(settings.rate_bit_s));
    let drift_ns = i128::from(busy_ns) - i128::try_from(sending_ns).unwrap_or(i128::MAX);
    println!(
        "24 h of a 64 Mbit/s link in {took_s:.1} s: {} packets in, {} dropped, {} windows over the rate, drift {drift_ns} ns",
        totals.arrived.packets,
        totals.dropped.all().packets,
        link.windows_over_rate(),
    );
    let exact = drift_ns == 0 && link.windows_over_rate() == 0 && took_s < 120.0;
    ExitCode::from(u8::from(!exact))
}
