// SPDX-License-Identifier: Apache-2.0
//! The sockets of probes: one that sees them arrive on every interface, one that sends them.

use super::filter;
use super::probe_header::{self, Probe};
use crate::job::{failed, realtime_ns};
use crate::socket::{is_not_ready, not_permitted};
use atoll_headers::VlanTag;
use atoll_netio::frame::tag_of_control_message;
use atoll_netio::interface::{Interface, enable_vlan_tags};
use nix::net::if_::if_indextoname;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{
    ControlMessageOwned, LinkAddr, MsgFlags, TimestampingFlag, recvmsg, setsockopt,
};
use nix::sys::time::TimeValLike;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `ETH_P_ALL`: of the kernel's two places for such sockets the earlier one, before traffic control takes packets away.
const EVERY_PROTOCOL: u16 = 3;
const IP_PROTOCOL_RAW: i32 = 255;
const PACKET_BYTES: usize = 2048;

/// A probe that arrived.
pub struct ProbeArrival {
    /// Which one.
    pub probe: Probe,
    /// Where.
    pub interface: String,
    /// The VLAN id of its tag there, if it had one.
    pub vlan: Option<u16>,
    /// The kernel's stamp, real time.
    pub t_ns: i64,
}

/// Sees the probes of one session that come to this network namespace, whomever they are for.
pub struct Watcher {
    socket: Socket,
    packet: Vec<u8>,
    control: Vec<u8>,
    session: u32,
}

impl Watcher {
    /// Whatever comes to `promiscuous` interfaces is looked at.
    ///
    /// # Errors
    /// Without the right to open packet sockets; if there is no such interface.
    pub fn open(session: u32, promiscuous: &[String]) -> io::Result<Self> {
        let protocol = Protocol::from(i32::from(EVERY_PROTOCOL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))
            .map_err(not_permitted("open the sockets of probes"))?;
        socket
            .attach_filter(&filter::session_filter(session))
            .map_err(failed("attach the filter for probes"))?;
        for name in promiscuous {
            Interface::find(name)
                .and_then(|interface| interface.make_promiscuous(&socket))
                .map_err(failed(format!("watch interface '{name}'")))?;
        }
        socket.set_nonblocking(true)?;
        enable_vlan_tags(&socket).map_err(failed("ask for VLAN tags"))?;
        let stamps = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE;
        setsockopt(&socket, Timestamping, &stamps).map_err(failed("ask for kernel time stamps"))?;
        Ok(Self {
            socket,
            packet: vec![0; PACKET_BYTES],
            control: vec![0; 512],
            session,
        })
    }

    /// The next arrival; None when there are no more for now.
    ///
    /// # Errors
    /// None are expected.
    pub fn receive(&mut self) -> io::Result<Option<ProbeArrival>> {
        loop {
            let mut slices = [IoSliceMut::new(&mut self.packet)];
            let received = recvmsg::<LinkAddr>(
                self.socket.as_raw_fd(),
                &mut slices,
                Some(&mut self.control),
                MsgFlags::empty(),
            );
            let message = match received.map_err(io::Error::from) {
                Ok(message) => message,
                Err(error) if is_not_ready(&error) => return Ok(None),
                // An interface went down; those that are up go on.
                Err(error) if error.kind() == ErrorKind::NetworkDown => continue,
                Err(error) => return Err(error),
            };
            let (mut stamp_ns, mut vlan) = (None, None);
            for control in message.cmsgs()? {
                match control {
                    ControlMessageOwned::ScmTimestampsns(stamps) => {
                        stamp_ns = Some(stamps.system.num_nanoseconds());
                    }
                    ControlMessageOwned::Unknown(other) => {
                        let (header, data) = (other.cmsg_header, &other.data_bytes);
                        vlan = vlan.or(tag_of_control_message(
                            header.cmsg_level,
                            header.cmsg_type,
                            data,
                        ));
                    }
                    _ => {}
                }
            }
            let index = message.address.map_or(0, |address| address.ifindex());
            let bytes = message.bytes;
            // Packets that came before the filter did are looked at here.
            let probe = probe_header::parse(&self.packet[..bytes]);
            if let Some(probe) = probe.filter(|probe| probe.header.session == self.session) {
                let interface = if_indextoname(index as u32)
                    .map_or_else(|_| index.to_string(), |name| name.to_string_lossy().into());
                return Ok(Some(ProbeArrival {
                    probe,
                    interface,
                    vlan: vlan.map(VlanTag::id),
                    t_ns: stamp_ns
                        .filter(|&stamp_ns| stamp_ns > 0)
                        .unwrap_or_else(realtime_ns),
                }));
            }
        }
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends probes as this host's other packets are sent: by its routes and neighbours.
pub struct Sender(Socket);

impl Sender {
    /// # Errors
    /// Without the right to open raw sockets.
    pub fn open() -> io::Result<Self> {
        let protocol = Protocol::from(IP_PROTOCOL_RAW); // it receives nothing, and takes whole packets
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(protocol))
            .map_err(not_permitted("open the sockets of probes"))?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Send; the real time just before.
    ///
    /// # Errors
    /// If there is no route, or the interface's queue is full.
    pub fn send(&self, probe: &Probe) -> io::Result<i64> {
        let packet = probe.packet();
        let now_ns = realtime_ns();
        self.0
            .send_to(&packet, &SocketAddrV4::new(probe.destination, 0).into())?;
        Ok(now_ns)
    }
}
