// SPDX-License-Identifier: Apache-2.0
//! A whole capture to a file of records.

use crate::failed_on;
use crate::flows::Flows;
use crate::packet::{self, Packet};
use crate::reader::Reader;
use crate::record::Record;
use crate::senders::{Sender, Senders};
use atoll_headers::Prefix;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The summary of decoding: the last line of standard output.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "done")]
pub struct Summary {
    /// IPv4 packets: records written.
    pub packets: u64,
    /// Frames that hold no IPv4 packet, or one that was left out.
    pub other_frames: u64,
    /// Packets that are parts of larger ones.
    pub fragments: u64,
    /// Packets whose TCP, UDP or ICMP header was not kept whole (too small a snap length).
    pub cut_headers: u64,
    /// Flows seen.
    pub flows: u32,
    /// The file ends within a frame; it was read up to there.
    pub truncated: bool,
    /// IPv4 addresses with their MAC addresses.
    pub senders: Vec<Sender>,
}

/// How packets are understood by their addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Networks {
    /// The island's prefix: packets to it have `to_island`.
    pub island: Option<Prefix>,
    /// Packets between two addresses of it, those of in-band control, are left out.
    pub control: Option<Prefix>,
}

impl Networks {
    fn excludes(&self, packet: &Packet) -> bool {
        self.control
            .is_some_and(|network| network.contains(packet.src) && network.contains(packet.dst))
    }
}

/// Decode the capture `input` into the file `output`, which is replaced only if all of `input` was decoded.
///
/// # Errors
/// When either file cannot be used, `input` is no Ethernet capture, or `output` is `input` or not a regular file.
pub fn write_records(input: &Path, output: &Path, networks: Networks) -> Result<Summary, String> {
    replace_output(input, output, |reader, file| {
        decode(reader, file, &output.display().to_string(), networks)
    })
}

/// Replace `output` by what `write` makes of the capture `input`, if that succeeds.
pub(crate) fn replace_output<T>(
    input: &Path,
    output: &Path,
    write: impl FnOnce(Reader, &File) -> Result<T, String>,
) -> Result<T, String> {
    let reader = Reader::open(input)?;
    let name = output.display().to_string();
    if let Ok(existing) = fs::metadata(output) {
        let source = fs::metadata(input).map_err(failed_on(&input.display().to_string()))?;
        if (existing.dev(), existing.ino()) == (source.dev(), source.ino()) {
            return Err(format!(
                "{name}: is the capture itself; name another output"
            ));
        }
        if !existing.is_file() {
            return Err(format!("{name}: is not a regular file"));
        }
    }
    let mut part = output.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&part);
    let (file, is_unnamed) = new_file(part).map_err(failed_on(&name))?;
    let result = write(reader, &file).and_then(|summary| {
        if is_unnamed {
            link_name(&file, part).map_err(failed_on(&name))?;
        }
        fs::rename(part, output).map_err(failed_on(&name))?;
        Ok(summary)
    });
    if result.is_err() {
        fs::remove_file(part).ok();
    }
    result
}

/// A new file in the folder of `part`: without a name, so that nothing of it stays if this process is killed, and true;
/// `part` itself, and false, where the file system has no files without names.
fn new_file(part: &Path) -> io::Result<(File, bool)> {
    let folder = match part.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok((file.into(), true)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok((File::create_new(part)?, false)),
        Err(error) => Err(error.into()),
    }
}

/// Give a file without a name this one, as open(2) says of `O_TMPFILE`.
fn link_name(file: &File, name: &Path) -> io::Result<()> {
    let open_path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(
        CWD,
        open_path,
        CWD,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

/// Decode the capture `input` and write nothing.
///
/// # Errors
/// As of [`write_records`].
pub fn count_records(input: &Path, networks: Networks) -> Result<Summary, String> {
    decode(Reader::open(input)?, io::sink(), "", networks)
}

fn decode(
    mut reader: Reader,
    output: impl Write,
    name: &str,
    networks: Networks,
) -> Result<Summary, String> {
    let mut writer = BufWriter::with_capacity(1 << 20, output);
    let mut flows = Flows::default();
    let mut senders = Senders::default();
    let mut summary = Summary::default();
    while let Some(frame) = reader.next_frame()? {
        let Some(packet) = packet::parse(frame.bytes, frame.wire_bytes) else {
            summary.other_frames += 1;
            senders.add_other_frame(frame.bytes);
            continue;
        };
        if networks.excludes(&packet) {
            summary.other_frames += 1;
            continue;
        }
        summary.packets += 1;
        summary.fragments += u64::from(packet.fragment);
        summary.cut_headers += u64::from(packet.cut);
        let record = make_record(&packet, frame.t_ns, &mut flows, networks.island);
        senders.add_packet(frame.bytes, record.flow, record.src, record.dst);
        writer
            .write_all(&record.to_bytes())
            .map_err(failed_on(name))?;
    }
    writer.flush().map_err(failed_on(name))?;
    summary.flows = flows.count;
    summary.truncated = reader.input.truncated;
    summary.senders = senders.into_list();
    Ok(summary)
}

fn make_record(packet: &Packet, t_ns: i64, flows: &mut Flows, island: Option<Prefix>) -> Record {
    let flow_fields = flows.track(packet);
    let tcp = packet.tcp.unwrap_or_default();
    Record {
        t_ns,
        src: packet.src,
        dst: packet.dst,
        ip_bytes: packet.ip_bytes,
        payload_bytes: packet.payload_bytes,
        new_payload_bytes: flow_fields.new_payload_bytes,
        seq: tcp.seq,
        ack: tcp.ack,
        flow: flow_fields.flow,
        window: flow_fields.window,
        sport: packet.sport,
        dport: packet.dport,
        ip_id: packet.ip_id,
        vlan: packet.vlan,
        proto: packet.proto,
        tcp_flags: tcp.flags,
        to_island: u8::from(island.is_some_and(|island| island.contains(packet.dst))),
        icmp_type: packet.icmp_type,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{frame, tcp};
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        for number in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65535, 1] {
            file.extend(number.to_le_bytes());
        }
        for (number, bytes) in frames.iter().enumerate() {
            for word in [9, number as u32, bytes.len() as u32, bytes.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(bytes);
        }
        file
    }

    #[test]
    fn a_capture_becomes_one_record_a_packet() {
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        let data = frame(&[], 0, packet::TCP, 0, &tcp(100, packet::ACK, &[], 50));
        let file = capture(&[arp, data.clone(), data]);
        let directory = std::env::temp_dir();
        let unique = std::process::id();
        let input = directory.join(format!("atoll-records-{unique}.pcap"));
        let output = directory.join(format!("atoll-records-{unique}.bin"));
        fs::write(&input, zstd::encode_all(&file[..], 1).unwrap()).unwrap();
        let networks = Networks {
            island: Some("10.20.0.0/16".parse().unwrap()),
            control: Some("10.20.0.0/16".parse().unwrap()), // one end of the packets alone is in it
        };
        let done = write_records(&input, &output, networks).unwrap();
        let records = fs::read(&output).unwrap();
        fs::remove_file(&input).unwrap();
        fs::remove_file(&output).unwrap();
        let expected = Summary {
            packets: 2,
            other_frames: 1,
            flows: 1,
            senders: vec![Sender {
                address: Ipv4Addr::new(10, 10, 0, 1),
                mac: "00:00:00:00:00:00".into(),
                arp: false,
                ipv4: true,
            }],
            ..Summary::default()
        };
        assert_eq!(done, expected);
        let first = Record {
            t_ns: 9_000_000_001,
            src: 0x0a0a_0001,
            dst: 0x0a14_0002,
            ip_bytes: 90,
            payload_bytes: 50,
            new_payload_bytes: 50,
            seq: 100,
            ack: 77,
            window: 500,
            sport: 5001,
            dport: 40000,
            ip_id: 0xbeef,
            proto: 6,
            tcp_flags: packet::ACK,
            to_island: 1,
            ..Record::default()
        };
        let second = Record {
            t_ns: 9_000_000_002,
            new_payload_bytes: 0,
            ..first
        };
        assert_eq!(records, [first.to_bytes(), second.to_bytes()].concat());
    }

    #[test]
    fn packets_of_in_band_control_are_left_out_and_counted_as_other_frames() {
        let data = frame(&[], 0, packet::TCP, 0, &tcp(100, packet::ACK, &[], 50)); // 10.10.0.1 to 10.20.0.2
        let unique = std::process::id();
        let input = std::env::temp_dir().join(format!("atoll-control-{unique}.pcap"));
        let output = std::env::temp_dir().join(format!("atoll-control-{unique}.bin"));
        fs::write(&input, capture(&[data])).unwrap();
        for (control, kept) in [("10.0.0.0/8", 0), ("10.10.0.0/16", 1), ("10.20.0.0/16", 1)] {
            let networks = Networks {
                control: Some(control.parse().unwrap()),
                ..Networks::default()
            };
            let done = write_records(&input, &output, networks).unwrap();
            assert_eq!((done.packets, done.other_frames), (kept, 1 - kept));
            assert_eq!(done.senders.len() as u64, kept);
            assert_eq!(
                fs::metadata(&output).unwrap().len(),
                kept * crate::RECORD_BYTES as u64
            );
        }
        fs::remove_file(&input).unwrap();
        fs::remove_file(&output).unwrap();
    }

    /// A folder with `a.pcap`, a capture of one packet, and `damaged.pcap`, whose second frame is impossible.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("atoll-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let whole = capture(&[frame(&[], 0, 99, 0, &[])]);
        fs::write(folder.join("a.pcap"), &whole).unwrap();
        fs::write(
            folder.join("damaged.pcap"),
            [&whole[..], &[0xff; 16]].concat(),
        )
        .unwrap();
        folder
    }

    #[test]
    fn a_file_has_no_name_before_it_is_complete() {
        let folder = folder("unnamed");
        let part = folder.join("part");
        let (mut file, is_unnamed) = new_file(&part).unwrap();
        file.write_all(b"whole").unwrap();
        assert_eq!(part.exists(), !is_unnamed); // where the file system allows it
        if is_unnamed {
            link_name(&file, &part).unwrap();
        }
        assert_eq!(fs::read(&part).unwrap(), b"whole");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_is_not_regular_is_neither_written_nor_removed() {
        let folder = folder("device");
        let link = folder.join("null"); // of the device, an error could remove this link alone
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for input in ["a.pcap", "damaged.pcap"] {
            let error = write_records(&folder.join(input), &link, Networks::default()).unwrap_err();
            assert!(error.ends_with("null: is not a regular file"), "{error}");
            assert!(link.is_symlink());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_error_leaves_the_output_of_before_and_no_other_file() {
        let folder = folder("before");
        let output = folder.join("out.bin");
        fs::write(&output, "before").unwrap();
        write_records(&folder.join("damaged.pcap"), &output, Networks::default()).unwrap_err();
        assert_eq!(fs::read(&output).unwrap(), b"before");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_capture_is_not_replaced_by_its_own_records() {
        let folder = folder("same");
        let input = folder.join("a.pcap");
        let before = fs::read(&input).unwrap();
        let other_name = folder
            .join("../")
            .join(folder.file_name().unwrap())
            .join("a.pcap");
        fs::hard_link(&input, folder.join("hard.pcap")).unwrap();
        for output in [&input, &other_name, &folder.join("hard.pcap")] {
            let error = write_records(&input, output, Networks::default()).unwrap_err();
            assert!(
                error.ends_with("is the capture itself; name another output"),
                "{error}"
            );
            assert_eq!(fs::read(&input).unwrap(), before);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn done_is_one_json_object_with_its_type() {
        let said = serde_json::to_value(Summary::default()).unwrap();
        assert_eq!(said["type"], "done");
        assert_eq!(said["truncated"], false);
    }

    #[test]
    fn a_full_disk_is_reported_and_leaves_no_half_written_file() {
        let input = std::env::temp_dir().join(format!("atoll-full-{}.pcap", std::process::id()));
        fs::write(&input, capture(&[frame(&[], 0, 99, 0, &[])])).unwrap();
        let reader = Reader::open(&input).unwrap();
        fs::remove_file(&input).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = decode(reader, full, "/dev/full", Networks::default()).unwrap_err();
        assert!(error.starts_with("/dev/full: No space left"), "{error}");
    }
}
