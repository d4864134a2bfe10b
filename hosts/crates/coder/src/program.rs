// SPDX-License-Identifier: Apache-2.0
//! The program that the frame engine runs: a router whose packets pass tunnels.

use crate::config::{Config, Mac, Side, Signal};
use crate::counters::{CurrentValues, Figures, Line, Sums};
use crate::flow_table::FlowTable;
use crate::in_order::InOrder;
use crate::ipv4::{self, Ipv4, UDP};
use crate::lab_packets::is_testbed_packet;
use crate::outer;
use crate::outlet::{Exit, Outlet, outgoing};
use crate::stream::Delivery;
use crate::tunnel::{Tunnel, is_congestion_marked};
use atoll_frame_engine::{Arrival, FrameOutput, FrameProgram, Now, Outgoing};
use atoll_headers::{ETHERNET_BYTES, ethernet_header};
use atoll_measures::{Marked, Peak, Since as _};
use atoll_redundancy::{AdaptiveRedundancy, Report};
use atoll_rlnc::CodeError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The type of frames with IPv4 packets.
const ETHERTYPE_IPV4: u16 = 0x0800;
/// For so long after a packet of the testbed, whose delay is measured, none waits in the ring.
const MEASURE_GAP_NS: u64 = 1_000_000_000;
/// For destinations that are no host: a coder of a tunnel within this one takes all frames.
const NO_HOST: Mac = Mac([2, 0, 0, 0, 0, 0]);

/// A request, one line of JSON (docs/contracts.md, "coder").
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
}

/// `atoll-host coder`.
#[derive(Debug)]
pub(crate) struct Coder {
    tunnels: Vec<Tunnel>,
    outlets: Vec<Outlet>,
    router: Router,
    flows: FlowTable,
    small_bytes: u64,
    flow_threshold_bytes: u64,
    calibration_port: u16,
    signal: Signal,
    /// When the last packet arrived, and the last one of the testbed.
    last_ns: u64,
    testbed_ns: Option<u64>,
    sums: Sums,
    marked: Marked<Sums>,
}

/// The addresses in frames.
#[derive(Debug)]
struct Router {
    /// By port.
    macs: Vec<Mac>,
    hosts: BTreeMap<Ipv4Addr, Mac>,
}

impl Router {
    /// Append a packet in a frame that leaves by `port`, one hop further. `fallback`: the destination if it is no host.
    fn write(&self, frame: &mut Vec<u8>, port: usize, packet: &Ipv4<'_>, fallback: Mac) {
        let destination = self.hosts.get(&packet.destination()).unwrap_or(&fallback);
        outer::write_ethernet(frame, destination.0, self.macs[port].0);
        frame.extend_from_slice(packet.bytes);
        ipv4::decrement_ttl(&mut frame[ETHERNET_BYTES..]);
    }
}

/// Ports are numbered in pairs, the world's first.
fn side_of(port: usize) -> Side {
    if port % 2 == 0 {
        Side::World
    } else {
        Side::Island
    }
}

fn other_leg(port: usize) -> usize {
    port ^ 1
}

impl Coder {
    /// `session_start`: the start of its session, the number from which it counts generations.
    ///
    /// # Errors
    /// None: a configuration has sizes that its code has.
    pub(crate) fn new(config: &Config, session_start: u32) -> Result<Self, CodeError> {
        let (mut tunnels, mut outlets) = (Vec::<Tunnel>::new(), Vec::new());
        for (tunnel_index, tunnel) in config.tunnels.iter().enumerate() {
            let mut before = config.tunnels[..tunnel_index].iter();
            let shared = before.position(|other| config.share_queue(other, tunnel));
            let outlet = shared.map_or(outlets.len(), |first| tunnels[first].outlet);
            if shared.is_none() {
                outlets.push(Outlet::new(config));
            }
            tunnels.push(Tunnel::new(config, (tunnel_index, outlet), session_start)?);
        }
        let hosts = config.hosts.world.iter().chain(&config.hosts.island);
        Ok(Self {
            tunnels,
            outlets,
            router: Router {
                macs: config.interfaces().map(|interface| interface.mac).collect(),
                hosts: hosts.map(|(address, mac)| (*address, *mac)).collect(),
            },
            flows: FlowTable::default(),
            small_bytes: config.small_bytes,
            flow_threshold_bytes: config.flow_threshold_bytes,
            calibration_port: config.calibration_port,
            signal: config.signal,
            last_ns: 0,
            testbed_ns: None,
            sums: Sums::default(),
            marked: Marked::default(),
        })
    }

    fn on_packet(&mut self, arrival: &Arrival<'_>, packet: &Ipv4<'_>, out: &mut FrameOutput<()>) {
        let (port, side) = (arrival.port, side_of(arrival.port));
        self.last_ns = self.last_ns.max(arrival.now_ns);
        let from_peer = |tunnel: &Tunnel| tunnel.peer_at() == side && tunnel.is_for_us(packet);
        if packet.protocol() == UDP {
            if let Some(tunnel_index) = self.tunnels.iter().position(from_peer) {
                self.decode(tunnel_index, arrival, packet, out);
                return;
            }
        }
        if packet.ttl() <= 1 {
            self.sums.ignored_frames += 1;
            return;
        }
        let carries = |tunnel: &Tunnel| tunnel.peer_at() != side && tunnel.carries(packet, side);
        let tunnel = self.tunnels.iter().position(carries);
        let is_testbed = is_testbed_packet(packet, self.calibration_port);
        if is_testbed {
            self.testbed_ns = Some(arrival.now_ns);
        }
        match tunnel {
            Some(tunnel_index) if !is_testbed && self.is_coded(tunnel_index, packet) => {
                self.encode(tunnel_index, port, arrival.now_ns, packet, out);
            }
            _ => self.forward(tunnel, arrival, packet, out),
        }
    }

    fn is_coded(&mut self, tunnel: usize, packet: &Ipv4<'_>) -> bool {
        if !self.tunnels[tunnel].is_encoding {
            return false;
        }
        let is_long_flow =
            self.flow_threshold_bytes == 0 || self.flows.count(packet) >= self.flow_threshold_bytes;
        is_long_flow && packet.bytes.len() as u64 > self.small_bytes
    }

    /// Forward a packet as it is. `tunnel`: the one that could have carried it.
    fn forward(
        &mut self,
        tunnel: Option<usize>,
        arrival: &Arrival<'_>,
        packet: &Ipv4<'_>,
        out: &mut FrameOutput<()>,
    ) {
        let port = other_leg(arrival.port);
        let mut frame = out.buffer(ETHERNET_BYTES + packet.bytes.len());
        let destination = arrival
            .received
            .frame
            .first_chunk()
            .copied()
            .map_or(NO_HOST, Mac);
        self.router.write(&mut frame, port, packet, destination);
        self.sums.uncoded_packets += 1;
        if let Some(tunnel_index) = tunnel {
            let outlet = &mut self.outlets[self.tunnels[tunnel_index].outlet];
            (outlet.scheduler).sent(arrival.now_ns, packet.bytes.len() as u32);
        }
        out.send(outgoing(port, arrival.now_ns, frame));
    }

    fn encode(
        &mut self,
        tunnel_index: usize,
        port: usize,
        now_ns: u64,
        packet: &Ipv4<'_>,
        out: &mut FrameOutput<()>,
    ) {
        let tunnel = &mut self.tunnels[tunnel_index];
        if !tunnel.fits(packet) {
            self.sums.oversize_packets += 1;
            return;
        }
        let mut inner = out.buffer(packet.bytes.len());
        inner.extend_from_slice(packet.bytes);
        ipv4::decrement_ttl(&mut inner);
        let port = other_leg(port);
        let leg = (port, self.router.macs[port].0);
        let mut exit = Exit {
            outlet: &mut self.outlets[tunnel.outlet],
            out,
            sums: &mut self.sums,
        };
        let sent = tunnel.encode(now_ns, leg, &inner, packet.tos(), &mut exit);
        exit.out.recycle(inner);
        self.sums.ignored_frames += u64::from(sent.is_err());
        self.emit(tunnel_index, now_ns, out);
    }

    /// Take a packet of the other coder.
    fn decode(
        &mut self,
        tunnel_index: usize,
        arrival: &Arrival<'_>,
        packet: &Ipv4<'_>,
        out: &mut FrameOutput<()>,
    ) {
        let (port, now_ns) = (arrival.port, arrival.now_ns);
        let tunnel = &mut self.tunnels[tunnel_index];
        let Some((session, content)) = outer::content(packet) else {
            self.sums.decoded.malformed_packets += 1;
            return;
        };
        if !tunnel.check_version(content) {
            self.sums.other_version_packets += 1;
            return;
        }
        if !tunnel.accept_session(now_ns, session) {
            self.sums.decoded.late_packets += 1;
            return;
        }
        if Report::is_one(content) {
            let outlet = &mut self.outlets[tunnel.outlet];
            tunnel.learn(now_ns, content, outlet, &mut self.sums);
        } else {
            let deliveries = tunnel.decoder.take(now_ns, content);
            tunnel.arrived(now_ns, (port, self.router.macs[port].0));
            for delivery in deliveries.iter() {
                let congested = is_congestion_marked(packet.tos()) && !delivery.recovered;
                let frame = self.delivered_frame(tunnel_index, arrival, congested, delivery, out);
                match &mut self.tunnels[tunnel_index].in_order {
                    Some(in_order) => {
                        let bytes = delivery.packet.len() as u32;
                        in_order.push(now_ns, delivery.number, bytes, frame);
                    }
                    None => frame.into_iter().for_each(|frame| out.send(frame)),
                }
            }
        }
        self.release(tunnel_index, now_ns, out);
        self.emit(tunnel_index, now_ns, out);
    }

    /// The frame of a packet that the other coder brought; `None` if it goes no further. `congested`: it says that there was
    /// congestion on its way.
    fn delivered_frame(
        &mut self,
        tunnel: usize,
        arrival: &Arrival<'_>,
        congested: bool,
        delivery: Delivery<'_>,
        out: &mut FrameOutput<()>,
    ) -> Option<Outgoing<()>> {
        let (tunnel, from) = (&self.tunnels[tunnel], side_of(arrival.port));
        let inner = Ipv4::parse(delivery.packet)
            .filter(|inner| inner.ttl() > 1 && tunnel.carries(inner, from));
        let Some(inner) = inner else {
            self.sums.decoded.malformed_packets += 1;
            return None;
        };
        let capable = ipv4::is_ecn_capable(inner.tos());
        if congested && !capable && !is_congestion_marked(inner.tos()) {
            self.sums.ignored_frames += 1; // a host that does not know ECN learns of congestion by loss (RFC 6040)
            return None;
        }
        let port = other_leg(arrival.port);
        let mut frame = out.buffer(ETHERNET_BYTES + delivery.packet.len());
        self.router.write(&mut frame, port, &inner, NO_HOST);
        let recovered_from_congestion = delivery.recovered && self.signal == Signal::Mark;
        if capable && (congested || recovered_from_congestion) {
            ipv4::mark_congestion(&mut frame[ETHERNET_BYTES..]);
        }
        Some(outgoing(port, arrival.now_ns, frame))
    }

    /// Send the packets of a tunnel whose turn has come.
    fn release(&mut self, tunnel_index: usize, now_ns: u64, out: &mut FrameOutput<()>) {
        let Some(in_order) = &mut self.tunnels[tunnel_index].in_order else {
            return;
        };
        for frame in in_order.released().flatten() {
            out.send(Outgoing {
                scheduled_ns: now_ns,
                ..frame
            });
        }
    }

    fn emit(&mut self, tunnel_index: usize, now_ns: u64, out: &mut FrameOutput<()>) {
        let tunnel = &mut self.tunnels[tunnel_index];
        let mut exit = Exit {
            outlet: &mut self.outlets[tunnel.outlet],
            out,
            sums: &mut self.sums,
        };
        if tunnel.emit(now_ns, &mut exit).is_err() {
            self.sums.ignored_frames += 1;
        }
    }

    fn sums(&self, now: Now) -> Sums {
        let mut sums = Sums {
            cpu_ns: now.cpu_ns,
            ..self.sums
        };
        for tunnel in &self.tunnels {
            sums.decoded = sums.decoded.plus(&tunnel.decoder.sums());
            if let Some(held_sums) = tunnel.in_order.as_ref().map(InOrder::sums) {
                sums.held_packets += held_sums.packets;
                sums.held_ns += held_sums.waited_ns;
                sums.given_up_packets += held_sums.given_up;
            }
            if let Some(adaptive) = tunnel.adaptive() {
                sums.redundancy_changes += adaptive.changes();
                sums.fallbacks += adaptive.fallbacks();
            }
        }
        let dropped = (self.outlets.iter()).map(|outlet| outlet.scheduler.dropped());
        sums.dropped_repair_packets = dropped.sum();
        sums
    }

    fn current(&mut self, longest: impl Fn(&mut Peak) -> u64) -> CurrentValues {
        let mut current = CurrentValues::default();
        for tunnel in &mut self.tunnels {
            let recovery_ns = longest(tunnel.decoder.recovery_ns());
            current.recovery_delay_max_ns = current.recovery_delay_max_ns.max(recovery_ns);
            current.open_generations += tunnel.decoder.open_generations();
            current.rank_deficit += tunnel.decoder.rank_deficit();
            current.redundancy = current.redundancy.max(tunnel.repairs().into());
            let is_fallback = (tunnel.adaptive()).is_some_and(AdaptiveRedundancy::is_fallback);
            current.fallback |= u64::from(is_fallback);
            let (queueing_ns, rtt_ns) = tunnel.delays_ns();
            current.queueing_delay_ns = current.queueing_delay_ns.max(queueing_ns);
            current.report_rtt_ns = current.report_rtt_ns.max(rtt_ns);
            if let Some(in_order) = &tunnel.in_order {
                current.packets_on_hold += in_order.held().packets;
            }
        }
        for held in (self.outlets.iter()).map(|outlet| outlet.scheduler.held()) {
            current.waiting_repair_packets += held.packets;
            current.waiting_repair_bytes += held.bytes;
        }
        current
    }

    fn expire(&mut self, now_ns: u64) {
        for tunnel in &mut self.tunnels {
            tunnel.decoder.expire(now_ns);
        }
    }

    fn measurement(&mut self, now: Now) -> Figures {
        self.expire(now.monotonic_ns);
        let sums = self.sums(now);
        Figures {
            sums: self.marked.measure(sums),
            current: self.current(Peak::take_measurement),
        }
    }
}

impl FrameProgram for Coder {
    type Tag = ();
    type Request = Request;
    type Line = Line;

    fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<()>) {
        let received = arrival.received;
        if received.wire_bytes as usize > received.frame.len() {
            self.sums.oversize_packets += 1; // longer than the port's MTU, and cut
            return;
        }
        let (header_bytes, ether_type) = ethernet_header(received.frame);
        let packet = (received.frame.get(header_bytes..))
            .filter(|_| ether_type == Some(ETHERTYPE_IPV4))
            .and_then(Ipv4::parse);
        match packet {
            Some(packet) => self.on_packet(arrival, &packet, out),
            None => self.sums.ignored_frames += 1,
        }
    }

    fn next_wake(&self) -> Option<u64> {
        let repairs = (self.outlets.iter()).filter_map(|outlet| outlet.scheduler.next_ns());
        (self.tunnels.iter())
            .filter_map(Tunnel::next_ns)
            .chain(repairs)
            .min()
    }

    fn on_wake(&mut self, until_ns: u64, out: &mut FrameOutput<()>) {
        for tunnel_index in 0..self.tunnels.len() {
            if let Some(in_order) = &mut self.tunnels[tunnel_index].in_order {
                in_order.expire(until_ns);
            }
            self.release(tunnel_index, until_ns, out);
            self.emit(tunnel_index, until_ns, out);
        }
    }

    fn may_poll(&self) -> bool {
        self.testbed_ns
            .is_none_or(|at| self.last_ns.saturating_sub(at) >= MEASURE_GAP_NS)
    }

    fn on_refused(&mut self, _frame: &Outgoing<()>) {
        self.sums.unsent_packets += 1;
    }

    fn on_unread(&mut self, _port: usize, frames: u64) {
        self.sums.unread_packets += frames;
    }

    fn on_request(&mut self, request: Request, now: Now, _out: &mut FrameOutput<()>) -> Line {
        let Request::Mark { id } = request;
        Line::Mark {
            id,
            t_ns: now.real_time_ns,
            figures: self.measurement(now),
        }
    }

    fn ready(&mut self) -> Line {
        Line::Ready
    }

    fn counters(&mut self, now: Now) -> Line {
        self.expire(now.monotonic_ns);
        Line::Counters {
            t_ns: now.real_time_ns,
            figures: Figures {
                sums: self.sums(now),
                current: self.current(Peak::take_interval),
            },
            error: self.tunnels.iter().find_map(Tunnel::error),
        }
    }

    fn done(&mut self, now: Now) -> Line {
        Line::Done {
            t_ns: now.real_time_ns,
            figures: self.measurement(now),
        }
    }
}

#[cfg(test)]
mod tests;
