// SPDX-License-Identifier: Apache-2.0
//! A tunnel to another coder: encoder and decoder.

use crate::config::{CodedDirection, Config, Side, TunnelConfig};
use crate::counters::Sums;
use crate::feedback::{ReportReceiver, ReportSender};
use crate::in_order::InOrder;
use crate::ipv4::{ECN, Ipv4};
use crate::numbering;
use crate::outer::{Addresses, LOWER_EFFORT, OUTER_BYTES, session, write_frame};
use crate::outlet::{Exit, Outlet, WaitingRepair, outgoing};
use crate::stream::{EncoderOutput, Repair, StreamDecoder, StreamEncoder};
use atoll_frame_engine::Outgoing;
use atoll_headers::ETHERNET_BYTES;
use atoll_redundancy::{AdaptiveRedundancy, NUMBER_MODULUS, Report};
use atoll_rlnc::{CodeError, Header, VERSION};

/// The longest time by which a repair packet takes longer than others through a link, whose queue is full of them.
const IN_LINK_NS: u64 = 1_000_000_000;

/// Reports in both directions.
#[derive(Debug)]
struct Feedback {
    sender: ReportSender,
    receiver: ReportReceiver,
    /// The leg at which the other coder's last packet arrived, and its MAC address.
    leg: (usize, [u8; 6]),
}

/// A tunnel.
#[derive(Debug)]
pub(crate) struct Tunnel {
    index: usize,
    /// The index of its outlet.
    pub(crate) outlet: usize,
    config: TunnelConfig,
    /// Whether packets towards the other coder are coded.
    pub(crate) is_encoding: bool,
    longest_packet: usize,
    low_priority: bool,
    encoder: Box<dyn StreamEncoder>,
    pub(crate) decoder: Box<dyn StreamDecoder>,
    feedback: Option<Feedback>,
    /// Frames to the hosts, if they are held in order; `None` of a packet that is not forwarded.
    pub(crate) in_order: Option<InOrder<Option<Outgoing<()>>>>,
    /// The number of the next packet, if there is anyone to read it.
    number: u16,
    identification: u16,
    /// This coder's, which its packets have.
    session: u16,
    /// The present one of the other coder, and the one before, of which packets may still come.
    peer_sessions: [Option<u16>; 2],
    /// When a packet of the present one came last.
    last_heard_ns: u64,
    /// After this time without any, another session is the present one, even the one before.
    timeout_ns: u64,
    /// The version of the other coder's headers, if it is not the one of this coder.
    other_version: Option<u8>,
    /// By which the last packet left towards the other coder, and its address.
    port: usize,
    source_mac: [u8; 6],
}

impl Tunnel {
    /// The tunnel with this index in the configuration, and the index of its outlet.
    ///
    /// # Errors
    /// None: a configuration has sizes that its code has.
    pub(crate) fn new(
        config: &Config,
        (index, outlet): (usize, usize),
        session_start: u32,
    ) -> Result<Self, CodeError> {
        let tunnel = &config.tunnels[index];
        let longest_packet = config.longest_packet(tunnel.peer_at);
        let timeout_ns = config.stale_ns.saturating_add(IN_LINK_NS);
        let direction = match tunnel.peer_at {
            Side::World => CodedDirection::ToWorld,
            Side::Island => CodedDirection::ToIsland,
        };
        Ok(Self {
            index,
            outlet,
            config: tunnel.clone(),
            is_encoding: [CodedDirection::Both, direction].contains(&config.direction),
            longest_packet,
            low_priority: config.low_priority,
            encoder: config.encoder(session_start)?,
            decoder: config.decoder(longest_packet, timeout_ns)?,
            feedback: config.feedback.map(|feedback| Feedback {
                sender: ReportSender::new(feedback),
                receiver: ReportReceiver::new(feedback, config.adaptive, &config.shape()),
                leg: (0, [0; 6]),
            }),
            in_order: (config.hold_ns > 0).then(|| InOrder::new(config.hold_ns, timeout_ns)),
            number: 0,
            identification: 0,
            session: session(session_start),
            peer_sessions: [None; 2],
            last_heard_ns: 0,
            timeout_ns,
            other_version: None,
            port: usize::MAX, // none has left
            source_mac: [0; 6],
        })
    }

    pub(crate) fn peer_at(&self) -> Side {
        self.config.peer_at
    }

    /// Whether it carries a packet that comes from the hosts at `side`.
    pub(crate) fn carries(&self, packet: &Ipv4<'_>, side: Side) -> bool {
        let carries = &self.config.carries;
        let (from, to) = match side {
            Side::World => (carries.world, carries.island),
            Side::Island => (carries.island, carries.world),
        };
        from.contains(packet.source())
            && to.contains(packet.destination())
            && (carries.protocol).is_none_or(|protocol| protocol == packet.protocol())
    }

    /// Whether an outer packet is from the other coder to this one.
    pub(crate) fn is_for_us(&self, packet: &Ipv4<'_>) -> bool {
        packet.destination() == self.config.address && packet.source() == self.config.peer_address
    }

    /// An outer packet with this content came: whether its headers are of this coder's version.
    pub(crate) fn check_version(&mut self, content: &[u8]) -> bool {
        let version = content.first().map_or(VERSION, |kind| kind >> 4);
        self.other_version = Some(version).filter(|version| *version != VERSION);
        self.other_version.is_none()
    }

    /// Why this coder cannot work with the other one.
    pub(crate) fn error(&self) -> Option<String> {
        let version = self.other_version?;
        let address = self.config.peer_address;
        Some(format!(
            "the coder at {address} sends headers of version {version}, this one of version {VERSION}: install the same atoll on both machines"
        ))
    }

    /// An outer packet of this session came: whether it is the other coder's present one. The first packet of a new session
    /// ends all that is remembered of the one before. A straggler of an older one looks new; the present one then is again
    /// after `timeout_ns`.
    pub(crate) fn accept_session(&mut self, now_ns: u64, session: u16) -> bool {
        let [current_session, previous_session] = self.peer_sessions;
        let silent_ns = now_ns.saturating_sub(self.last_heard_ns);
        if previous_session == Some(session) && silent_ns < self.timeout_ns {
            return false;
        }
        self.last_heard_ns = now_ns;
        if current_session == Some(session) {
            return true;
        }
        self.peer_sessions = [Some(session), current_session];
        if current_session.is_some() {
            self.decoder.restart();
            if let Some(in_order) = &mut self.in_order {
                in_order.restart(now_ns);
            }
            if let Some(feedback) = &mut self.feedback {
                feedback.receiver.restart();
            }
        }
        true
    }

    /// Whether a packet fits into the tunnel.
    pub(crate) fn fits(&self, packet: &Ipv4<'_>) -> bool {
        packet.bytes.len() <= self.longest_packet
    }

    /// Send a packet, which [`Tunnel::fits`], by `port`, whose MAC address is `source_mac`. `tos` is that of the outer
    /// packet: DSCP and ECN of the packet itself (RFC 6040, normal mode).
    ///
    /// # Errors
    /// None are expected of such packets.
    pub(crate) fn encode(
        &mut self,
        now_ns: u64,
        (port, source_mac): (usize, [u8; 6]),
        packet: &[u8],
        tos: u8,
        exit: &mut Exit<'_>,
    ) -> Result<(), CodeError> {
        self.adapt(now_ns, exit.outlet);
        if port != self.port {
            let output = self.encoder.end()?; // what is recovered leaves the other coder as its repair packet came
            self.schedule_repairs(now_ns, output, exit);
            (self.port, self.source_mac) = (port, source_mac);
        }
        let (header, output) = self.encoder.push(now_ns, packet)?;
        let number = self.next_number(now_ns);
        let content_bytes = header.length() + packet.len();
        let mut frame = (exit.out).buffer(ETHERNET_BYTES + OUTER_BYTES + content_bytes);
        self.write_coded(&mut frame, tos, (header, number), packet);
        exit.sums.source_packets += 1;
        exit.sums.source_bytes += packet.len() as u64;
        exit.send(now_ns, port, frame);
        self.schedule_repairs(now_ns, output, exit);
        Ok(())
    }

    /// When [`Tunnel::emit`] is to be called next, but for repair packets that wait.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let report_ns = (self.feedback.as_ref()).and_then(|feedback| feedback.sender.due_ns());
        let held_ns = self.in_order.as_ref().and_then(InOrder::next_ns);
        let next_ns = [self.encoder.next_ns(), report_ns, held_ns];
        next_ns.into_iter().flatten().min()
    }

    /// A packet of the other coder arrived at this leg.
    pub(crate) fn arrived(&mut self, now_ns: u64, leg: (usize, [u8; 6])) {
        if let Some(feedback) = &mut self.feedback {
            feedback.sender.arrived(now_ns);
            feedback.leg = leg;
        }
    }

    /// Take a report of the other coder, if `content` is one.
    pub(crate) fn learn(
        &mut self,
        now_ns: u64,
        content: &[u8],
        outlet: &mut Outlet,
        sums: &mut Sums,
    ) {
        let (Some(feedback), Some(report)) = (&mut self.feedback, Report::parse(content)) else {
            sums.decoded.malformed_packets += 1;
            return;
        };
        sums.arrived_reports += 1;
        let delay = outlet.delay(self.config.peer_mac);
        let waited = feedback.receiver.learn(now_ns, &report, delay);
        outlet.learn(feedback.receiver.fresh_until_ns(), waited);
        self.encoder.learn(&report);
        sums.useless_repair_packets += outlet.discard(self.index, &report);
        self.adapt(now_ns, outlet);
    }

    /// End generations whose time is over, and send the repair packets of its outlet and the report that may leave.
    ///
    /// # Errors
    /// None are expected.
    pub(crate) fn emit(&mut self, now_ns: u64, exit: &mut Exit<'_>) -> Result<(), CodeError> {
        self.adapt(now_ns, exit.outlet);
        self.report(now_ns, exit);
        let output = self.encoder.flush(now_ns)?;
        self.schedule_repairs(now_ns, output, exit);
        while !exit.out.is_full() {
            let Some(WaitingRepair { port, frame, .. }) = exit.outlet.scheduler.pop(now_ns) else {
                break;
            };
            exit.sums.repair_packets += 1;
            exit.sums.repair_bytes += (frame.len() - ETHERNET_BYTES) as u64;
            exit.out.send(outgoing(port, now_ns, frame));
        }
        Ok(())
    }

    /// How repair packets are adapted, if they are.
    pub(crate) fn adaptive(&self) -> Option<&AdaptiveRedundancy> {
        let feedback = self.feedback.as_ref().filter(|_| self.is_encoding)?;
        feedback.receiver.adaptive()
    }

    /// Repair packets of a generation at present.
    pub(crate) fn repairs(&self) -> u16 {
        if self.is_encoding {
            self.encoder.repairs()
        } else {
            0
        }
    }

    /// The queueing delay towards the other coder, and the time until its answer, by its last report.
    pub(crate) fn delays_ns(&self) -> (u64, u64) {
        let receiver = self.feedback.as_ref().map(|feedback| &feedback.receiver);
        receiver.map_or((0, 0), |receiver| (receiver.queueing_ns, receiver.rtt_ns))
    }

    /// Act by the last report, or without any if it is too old.
    fn adapt(&mut self, now_ns: u64, outlet: &mut Outlet) {
        let Some(Feedback { receiver, .. }) = &mut self.feedback else {
            return;
        };
        outlet.forget_old_reports(now_ns);
        if let Some(repairs) = receiver.repairs(now_ns) {
            self.encoder.set_repairs(repairs);
        }
    }

    /// Send a report, if one is due.
    fn report(&mut self, now_ns: u64, exit: &mut Exit<'_>) {
        let Some(Feedback { sender, leg, .. }) = &mut self.feedback else {
            return;
        };
        if sender.due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        let (port, source_mac) = *leg;
        let report = self.decoder.report(now_ns, sender.sent(now_ns));
        let identification = self.next_identification();
        let mut frame = (exit.out).buffer(ETHERNET_BYTES + OUTER_BYTES + report.length());
        let addresses = Addresses {
            source_mac,
            ..self.addresses()
        };
        write_frame(
            &mut frame,
            &addresses,
            (0, identification),
            report.length(),
            |frame| report.write(frame),
        );
        exit.sums.sent_reports += 1;
        exit.send(now_ns, port, frame);
    }

    /// Hand repair packets to the scheduler.
    fn schedule_repairs(&mut self, now_ns: u64, output: EncoderOutput, exit: &mut Exit<'_>) {
        let tos = if self.low_priority { LOWER_EFFORT } else { 0 };
        for repair in output.repairs {
            let Repair { header, symbol } = repair;
            let content_bytes = header.length() + symbol.len();
            let mut frame = Vec::with_capacity(ETHERNET_BYTES + OUTER_BYTES + content_bytes);
            let numbered = (header, self.first_number(&header));
            self.write_coded(&mut frame, tos, numbered, &symbol);
            let bytes = (frame.len() - ETHERNET_BYTES) as u32;
            exit.outlet.scheduler.push(
                now_ns,
                bytes,
                WaitingRepair {
                    tunnel: self.index,
                    port: self.port,
                    frame,
                    header,
                },
            );
        }
        for _ in 0..output.ended {
            exit.outlet.scheduler.generation_ended();
        }
        exit.sums.encoded_generations += output.ended;
    }

    /// Append the frame of a packet of the code: its header, with a number if it has one, and what follows it.
    fn write_coded(
        &mut self,
        frame: &mut Vec<u8>,
        tos: u8,
        (header, number): (Header, Option<u16>),
        content: &[u8],
    ) {
        let tos_and_id = (tos, self.next_identification());
        let bytes = header.length() + content.len();
        write_frame(frame, &self.addresses(), tos_and_id, bytes, |frame| {
            let start = frame.len();
            header.write(frame);
            if let Some(number) = number {
                numbering::write(&mut frame[start..], number);
            }
            frame.extend_from_slice(content);
        });
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            source_mac: self.source_mac,
            destination_mac: self.config.peer_mac.0,
            source: self.config.address,
            destination: self.config.peer_address,
            session: self.session,
        }
    }

    /// The number of the next packet; `None` if nobody reads it.
    fn next_number(&mut self, now_ns: u64) -> Option<u16> {
        let number = match &mut self.feedback {
            Some(feedback) => feedback.receiver.sent(now_ns),
            None => self.number,
        };
        self.number = (number + 1) % NUMBER_MODULUS;
        (self.feedback.is_some() || self.in_order.is_some()).then_some(number)
    }

    /// The number of the first packet of a generation, which the last packets are of.
    fn first_number(&self, header: &Header) -> Option<u16> {
        match header {
            Header::Repair { count, .. } if self.in_order.is_some() => {
                Some((self.number + NUMBER_MODULUS - count) % NUMBER_MODULUS)
            }
            _ => None,
        }
    }

    fn next_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }
}

/// Whether an outer packet says that there was congestion.
pub(crate) fn is_congestion_marked(tos: u8) -> bool {
    tos & ECN == ECN
}
