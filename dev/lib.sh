# shellcheck shell=bash
# Functions and variables of the scripts in dev/: messages, locations, installation of missing
# tools, ports and processes.

# say TEXT: prints a message on standard error.
say() { echo "· $*" >&2; }
# die TEXT: prints an error message and exits with status 1.
die() {
	echo "✗ $*" >&2
	exit 1
}

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Files that are costly to create and equal for every clone are kept once per user. If the home folder is
# not writable, as in some CI jobs, the files are kept in the clone.
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/odometer
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then
	cache=$repo/.dev/cache
	mkdir -p "$cache" || die "Neither the home folder nor this clone can be written: there is no place to set anything up."
fi
tools=$cache/tools
PATH=$PATH:/usr/sbin:$tools/usr/bin:$tools/usr/sbin
libraries=$tools/usr/lib/$(uname -m)-linux-gnu # for packages that are only unpacked

# root: succeeds if the user is root.
root() { [[ $(id -u) == 0 ]]; }

# with_lock FILE COMMAND…: runs COMMAND with a lock on FILE, so that concurrent set-ups run one after the other.
with_lock() {
	local file=$1 lock
	shift
	mkdir -p "$(dirname "$file")"
	exec {lock}>"$file"
	flock -n "$lock" || {
		say "waiting for another set-up to finish ($file)"
		flock "$lock"
	}
	"$@" {lock}>&-
	exec {lock}>&-
}

# need COMMAND PACKAGE [unpack]: installs or unpacks PACKAGE if COMMAND is missing. Fails if COMMAND is still
# missing after that.
need() {
	command -v "$1" >/dev/null || with_lock "$cache/tools.lock" "${3:-install}" "$2"
	command -v "$1" >/dev/null || die "$1 is still missing after installing $2."
}

# install PACKAGE: installs PACKAGE from the system's package archive. Without root, it only unpacks the
# package and its missing dependencies into the cache.
install() {
	local how=()
	if root; then
		say "installing $1"
	else
		say "unpacking $1 for this user"
		how=(--download-only)
	fi
	packages "$1" install -y --no-install-recommends "${how[@]}" "$1"
	root || unpack_archives
}

# unpack PACKAGE: unpacks only this package into the cache, even as root, because some packages
# start a service when they are installed.
unpack() {
	say "unpacking $1 for this user"
	mkdir -p "$cache/apt/archives"
	cd "$cache/apt/archives"
	packages "$1" download "$1"
	cd - >/dev/null
	unpack_archives
}

# unpack_archives: unpacks the downloaded packages into the cache, and deletes them.
unpack_archives() {
	local deb
	mkdir -p "$tools"
	for deb in "$cache"/apt/archives/*.deb; do dpkg-deb -x "$deb" "$tools"; done
	rm -rf "$cache/apt/archives"
}

# packages PACKAGE COMMAND…: runs apt-get COMMAND for PACKAGE. Without root, apt-get keeps its lists and
# archives in the cache.
packages() {
	local state=$cache/apt package=$1 apt=(apt-get -o DPkg::Lock::Timeout=300) # another apt-get may be running
	shift
	command -v apt-get >/dev/null ||
		die "$package is missing. Only Debian and Ubuntu are set up by themselves: install it and try again."
	root || {
		mkdir -p "$state/lists/partial" "$state/archives/partial"
		apt+=(-o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state" -o Debug::NoLocking=1)
	}
	{ "${apt[@]}" update && DEBIAN_FRONTEND=noninteractive "${apt[@]}" "$@"; } >"$cache/apt.log" 2>&1 ||
		die "apt-get could not get $package; see $cache/apt.log"
}

# free_port NAME PORT VARIABLE: fails with a message if a program listens on the port. It never ends that program.
free_port() {
	! listening "$2" || die "Port $2, for $1, is taken by another program. Stop that, or choose another port with $3=…"
}
# listening PORT: succeeds if a program listens on the port of 127.0.0.1.
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# eventually SECONDS COMMAND…: repeats COMMAND until it succeeds, and fails after SECONDS.
eventually() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep 0.1
	done
}

# born PID: prints the start time of the process in the kernel's clock ticks, or nothing if the process
# has ended. A PID in a file may now belong to another process. PID and start time together
# identify a process.
born() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	read -ra stat <<<"${stat##*) }"
	[[ ${stat[0]} == Z ]] || echo "${stat[19]}"
}
