// SPDX-License-Identifier: Apache-2.0
//! The rattan emulator (rattan-core) between two interfaces that exist, with the configuration of `atoll-host link`.
//!
//! Reads one line of configuration (docs/contracts.md; delay, rate and byte queue of each direction), says
//! `{"type":"ready"}` and emulates until standard input ends. As in rattan's own command line each direction is a
//! bandwidth cell with a drop-tail queue, then a delay cell, on packet sockets and as many workers as rattan uses by
//! default: one.

use bandwidth::Bandwidth;
use once_cell::sync::OnceCell;
use rattan_core::cells::StdPacket;
use rattan_core::cells::bandwidth::queue::{DropTailQueue, DropTailQueueConfig};
use rattan_core::cells::bandwidth::{BwCell, BwType};
use rattan_core::cells::delay::DelayCell;
use rattan_core::cells::external::{VirtualEthernet, VirtualEthernetId};
use rattan_core::control::RattanNotify;
use rattan_core::core::RattanCore;
use rattan_core::metal::io::af_packet::AfPacketDriver;
use rattan_env::netns::NetNs;
use rattan_env::veth::{MacAddr, VethCell};
use serde::Deserialize;
use std::error::Error;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const WORKERS: usize = 1;

#[derive(Deserialize)]
struct Config {
    world: Port,
    island: Port,
    to_island: Direction,
    to_world: Direction,
}

/// An interface, and the address of the one at the other end of its cable, which rattan puts into frames.
#[derive(Deserialize)]
struct Port {
    interface: String,
    address: String,
    peer_address: String,
}

#[derive(Deserialize)]
struct Direction {
    rate_bit_s: u64,
    delay_ns: u64,
    queue_bytes: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let config: Config = serde_json::from_str(&line)?;

    let runtime = Arc::new(
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build()?,
    );
    let cancel = CancellationToken::new();
    let mut core = RattanCore::<AfPacketDriver>::new(runtime, cancel.clone(), cancel.clone());
    // rattan holds an interface's peer weakly: these keep both.
    let cells = [cell(&config.world)?, cell(&config.island)?];
    for (number, name, cell) in [(1, "left", &cells[0].0), (2, "right", &cells[1].0)] {
        let cell = Arc::clone(cell);
        core.build_cell(name.to_owned(), move |runtime| {
            let _entered = runtime.enter();
            let mut id = VirtualEthernetId::new();
            id.set_ns_id(number);
            id.set_veth_id(1);
            VirtualEthernet::<AfPacketDriver>::new(cell, id)
        })?;
    }
    for (way, from, to, direction) in [
        ("up", "left", "right", config.to_island),
        ("down", "right", "left", config.to_world),
    ] {
        let [rate, delay] = [format!("{way}-rate"), format!("{way}-delay")];
        core.build_cell(rate.clone(), move |runtime| {
            let _entered = runtime.enter();
            let queue = DropTailQueueConfig::new(None, direction.queue_bytes, BwType::NetworkLayer);
            BwCell::<StdPacket, DropTailQueue<StdPacket>>::new(
                Bandwidth::from_bps(direction.rate_bit_s),
                DropTailQueue::new(queue),
                BwType::NetworkLayer,
            )
        })?;
        core.build_cell(delay.clone(), move |runtime| {
            let _entered = runtime.enter();
            DelayCell::<StdPacket>::new(Duration::from_nanos(direction.delay_ns))
        })?;
        core.link_cell(from.to_owned(), rate.clone());
        core.link_cell(rate, delay.clone());
        core.link_cell(delay, to.to_owned());
    }
    core.spawn_rattan()?;
    core.send_notify(RattanNotify::Start)?;
    println!(r#"{{"type":"ready"}}"#);
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    std::process::exit(0) // its tasks wait for packets and not for the end
}

/// The interface as rattan knows it, and its peer.
fn cell(port: &Port) -> Result<(Arc<VethCell>, Arc<VethCell>), Box<dyn Error>> {
    let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", port.interface))?;
    let nowhere = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32);
    let make = |address: &str| -> Result<VethCell, Box<dyn Error>> {
        Ok(VethCell {
            name: port.interface.clone(),
            index: index.trim().parse()?,
            mac_addr: mac(address)?,
            ip_addr: nowhere,
            peer: OnceCell::new(),
            namespace: NetNs::current()?,
        })
    };
    let peer = Arc::new(make(&port.peer_address)?);
    let cell = Arc::new(make(&port.address)?);
    let _ = cell.peer.set(Arc::downgrade(&peer));
    Ok((cell, peer))
}

fn mac(text: &str) -> Result<MacAddr, Box<dyn Error>> {
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<Result<Vec<_>, _>>()?;
    let bytes: [u8; 6] = bytes.try_into().map_err(|_| "not an Ethernet address")?;
    Ok(MacAddr::new(bytes))
}
