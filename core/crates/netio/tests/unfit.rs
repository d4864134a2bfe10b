// SPDX-License-Identifier: Apache-2.0
//! A process of its own, for its limit of descriptors: without any, the kernel cannot be asked about an interface.

use atoll_netio::interface::Interface;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn an_interface_that_cannot_be_looked_at_is_not_called_missing() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let none = Rlimit {
        current: Some(0),
        maximum,
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let unfit = Interface::find_usable("lo", 1500).unwrap_err();
    let restored = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, restored).unwrap();
    assert_eq!(
        unfit,
        "interface 'lo' cannot be examined: Too many open files (os error 24)"
    );
}
