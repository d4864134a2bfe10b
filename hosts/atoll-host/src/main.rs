// SPDX-License-Identifier: Apache-2.0
//! The one binary on every host: agent, traffic, boxes and capture tools, one subcommand each.
//!
//! Jobs take their configuration as one JSON line on standard input, print JSON lines on standard
//! output and messages for people on standard error; they end when standard input does.
//!
//! Exit codes: 0 done, 1 failed, 2 bad configuration or arguments. A job reports a bad configuration as
//! [`atoll_job::bad_configuration`].

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: atoll_netio::memory_limit::Allocator = atoll_netio::memory_limit::Allocator;

#[derive(Parser)]
#[command(name = "atoll-host", version, about, long_about = None)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start, watch and stop jobs on this host, controlled by JSON lines on standard input
    Agent {
        /// Of a stream over a network: end everything when nothing was heard for so many seconds
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(2..=3600))]
        silence: Option<u64>,
        /// Somebody watches over this process already
        #[arg(long, hide = true)]
        guarded: bool,
        /// Give jobs no control groups, even where this machine lets us make some
        #[arg(long)]
        no_cgroups: bool,
    },
    /// Satellite link between two interfaces (configuration on standard input)
    Link,
    /// Delay box: one latency class per VLAN id (configuration on standard input)
    Delay,
    /// Link or delay box by the kernel's traffic control (configuration on standard input)
    Tc,
    /// Transparent TCP proxy that splits connections (configuration on standard input)
    Pep,
    /// Network coder: the packets of a chain in a tunnel with redundancy (configuration on standard input)
    Coder,
    /// World server: sends as many bytes as each connection asks for
    Serve,
    /// Island client: channels that fetch flow after flow
    Load,
    /// One large transfer, either end
    Transfer,
    /// A paced UDP stream, either end
    Udp,
    /// Ping series and whistles with kernel time stamps
    Ping,
    /// Probes of the data plane: sent, seen, answered (configuration on standard input)
    Probe,
    /// The frames of an interface into a pcap file (configuration on standard input)
    Capture,
    Flows(atoll_traffic::FlowsArguments),
    /// Capture files to packet records
    #[command(subcommand)]
    Pcap(atoll_pcap::PcapTool),
}

fn main() -> ExitCode {
    // The agent starts its jobs by another name of this file.
    rustix::thread::set_name(c"atoll-host").ok();
    let result = match Arguments::parse().command {
        Command::Agent {
            silence,
            guarded,
            no_cgroups,
        } => atoll_agent::run(silence.map(Duration::from_secs), guarded, no_cgroups),
        Command::Link => atoll_link_engine::run_link(),
        Command::Delay => atoll_link_engine::run_delay(),
        Command::Tc => atoll_link_tc::run(),
        Command::Pep => atoll_pep::run(),
        Command::Coder => atoll_coder::run(),
        Command::Serve => atoll_traffic::run(atoll_traffic::serve),
        Command::Load => atoll_traffic::run(atoll_traffic::load),
        Command::Transfer => atoll_traffic::run(atoll_traffic::transfer),
        Command::Udp => atoll_traffic::run(atoll_traffic::udp),
        Command::Ping => atoll_traffic::run(atoll_traffic::ping),
        Command::Probe => atoll_traffic::run(atoll_traffic::probe),
        Command::Capture => atoll_capture::run(),
        Command::Flows(arguments) => atoll_traffic::flows(&arguments).map_err(Into::into),
        Command::Pcap(tool) => atoll_pcap::run(&tool),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll-host: {error}");
            if atoll_job::is_bad_configuration(error.as_ref()) {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
