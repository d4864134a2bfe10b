// SPDX-License-Identifier: Apache-2.0
//! Non-blocking TCP sockets with the congestion control the experiment names.

use crate::job::failed;
use nix::errno::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// A listening socket; connections it accepts inherit its congestion control.
///
/// # Errors
/// If the congestion control is refused or the address is not free.
pub fn listen(
    address: SocketAddr,
    backlog: i32,
    congestion_control: Option<&str>,
) -> io::Result<TcpListener> {
    let open_and_bind = || -> io::Result<Socket> {
        let socket = open(address)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Ok(socket)
    };
    let action = format!("listen on {address}");
    let socket = open_and_bind().map_err(failed(&action))?;
    if let Some(name) = congestion_control {
        set_congestion_control(&socket, name)?;
    }
    socket.listen(backlog).map_err(failed(&action))?;
    Ok(socket.into())
}

/// Begin to connect to `address`: the socket becomes writable when it is connected or has failed, and
/// [`TcpStream::take_error`], or the first write, shows which.
///
/// # Errors
/// If there is no route, no port or no descriptor left, or the congestion control is refused.
pub fn connect(address: SocketAddr, congestion_control: Option<&str>) -> io::Result<TcpStream> {
    let socket = open(address)?;
    if let Some(name) = congestion_control {
        sockopt::set_tcp_congestion(&socket, name)?;
    }
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )
}

/// Set the congestion control of `socket` and read it back.
///
/// # Errors
/// A configuration failure that names the ones the kernel has, if it refuses.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    let result =
        sockopt::set_tcp_congestion(&socket, name).and_then(|()| sockopt::tcp_congestion(&socket));
    match result {
        Ok(actual) if actual == name => Ok(()),
        Ok(actual) => Err(refused(name, &format!("it took '{actual}' instead"))),
        Err(rustix::io::Errno::NOENT) => Err(refused(
            name,
            "there is none of that name (a module may be missing)",
        )),
        Err(rustix::io::Errno::PERM) => Err(refused(
            name,
            "it is restricted (widen net.ipv4.tcp_allowed_congestion_control in the first network namespace)",
        )),
        Err(error) => Err(refused(name, &io::Error::from(error).to_string())),
    }
}

/// Have the kernel pace the segments of a socket, and of the connections that it accepts: at most at `rate_bit_s`, or at the
/// rate of their congestion control. The kernel does that only where an upper bound is set, or by the `fq` queueing
/// discipline (net/core/sock.c); this program is not woken for it.
///
/// # Errors
/// As of [`atoll_netio::tcp_options::set_max_pacing_rate`].
pub fn pace(socket: impl AsFd, rate_bit_s: Option<u64>) -> io::Result<()> {
    const UNREACHED_BYTES_S: u64 = 1 << 50;
    let bytes_s = rate_bit_s.map_or(UNREACHED_BYTES_S, |rate_bit_s| rate_bit_s / 8);
    atoll_netio::tcp_options::set_max_pacing_rate(socket, bytes_s)
}

/// Try `name` on a socket of its own, so that a bad one is known before any traffic.
///
/// # Errors
/// As of [`set_congestion_control`].
pub fn check_congestion_control(name: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    set_congestion_control(&socket, name)
}

/// Whether every new socket has `name` by default: a system call less for each connection.
///
/// # Errors
/// If no socket can be made.
pub fn is_default_congestion_control(name: &str) -> io::Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    Ok(sockopt::tcp_congestion(&socket)? == name)
}

fn refused(name: &str, reason: &str) -> io::Error {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let available = available.as_deref().map_or("unknown", str::trim);
    atoll_job::bad_configuration(format!(
        "the kernel refuses congestion control '{name}': {reason}; available here: {available}"
    ))
}

/// For `map_err`: `action`, which needs a capability, has failed.
pub fn not_permitted(action: &str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| match error.kind() {
        ErrorKind::PermissionDenied => io::Error::other(format!(
            "cannot {action}: run as root, in a user namespace, or with CAP_NET_RAW"
        )),
        _ => failed(action)(error),
    }
}

/// The errno's name, such as `ECONNREFUSED`; `EUNKNOWN` for what did not come from the kernel.
#[must_use]
pub fn errno_name(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(
        || "EUNKNOWN".into(),
        |number| format!("{:?}", Errno::from_raw(number)),
    )
}

/// Have the end of this program, or closing before, reset the connection. Otherwise the kernel keeps a connection that is
/// closed, and sends again until the other end acknowledges: for minutes, if the link loses everything by then.
pub fn reset_when_closed(socket: impl AsFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO)); // fails only if it is no socket
}

/// Whether a non-blocking call had nothing to do and is to be repeated when the socket is ready again.
#[must_use]
pub fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn accepted_connections_inherit_the_congestion_control() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), 1, Some("reno")).unwrap();
        let client = connect(listener.local_addr().unwrap(), None).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(sockopt::tcp_congestion(&accepted).unwrap(), "reno");
        drop(client);
    }

    #[test]
    fn a_refused_congestion_control_is_bad_configuration_and_names_what_there_is() {
        let failure = check_congestion_control("vegan").unwrap_err();
        let message = failure.to_string();
        assert!(atoll_job::is_bad_configuration(&failure));
        assert!(
            message.starts_with("the kernel refuses congestion control 'vegan': "),
            "{message}"
        );
        assert!(message.contains("reno"), "{message}");
    }

    #[test]
    fn failures_have_their_errno_name() {
        assert_eq!(
            errno_name(&io::Error::from_raw_os_error(Errno::ETIMEDOUT as i32)),
            "ETIMEDOUT"
        );
        assert_eq!(errno_name(&io::Error::other("no number")), "EUNKNOWN");
    }
}
