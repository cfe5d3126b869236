# shellcheck shell=bash
# What the scripts in dev/ share: how to speak, where things live, how to get a missing tool,
# and how to start and stop a process.

say() { echo "· $*" >&2; }
die() {
	echo "✗ $*" >&2
	exit 1
}

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What is costly to make and the same for every clone is kept per user; a clone
# keeps it itself where the home folder cannot be written, as in some CI jobs.
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/odometer
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then
	cache=$repo/.dev/cache
	mkdir -p "$cache" || die "Neither the home folder nor this clone can be written: there is no place to set anything up."
fi
tools=$cache/tools
PATH=$PATH:/usr/sbin:$tools/usr/bin:$tools/usr/sbin
libraries=$tools/usr/lib/$(uname -m)-linux-gnu # for what was only unpacked

root() { [[ $(id -u) == 0 ]]; }

# with_lock FILE COMMAND…: two that would set up the same thing at once do it one after the other.
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

# need COMMAND PACKAGE [unpack]: COMMAND can be run afterwards.
need() {
	command -v "$1" >/dev/null || with_lock "$cache/tools.lock" "${3:-install}" "$2"
	command -v "$1" >/dev/null || die "$1 is still missing after installing $2."
}

# install PACKAGE: from the system's own archive. Without root it, and what it needs that is
# not installed, is only unpacked, into the cache.
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

# unpack PACKAGE: it alone, into the cache, also as root: some packages start a service when they are installed.
unpack() {
	say "unpacking $1 for this user"
	mkdir -p "$cache/apt/archives"
	cd "$cache/apt/archives"
	packages "$1" download "$1"
	cd - >/dev/null
	unpack_archives
}

unpack_archives() {
	local deb
	mkdir -p "$tools"
	for deb in "$cache"/apt/archives/*.deb; do dpkg-deb -x "$deb" "$tools"; done
	rm -rf "$cache/apt/archives"
}

# packages PACKAGE COMMAND…: apt-get's COMMAND, which is about PACKAGE; without root, with lists and archives in the cache.
packages() {
	local state=$cache/apt package=$1 apt=(apt-get -o DPkg::Lock::Timeout=300) # another apt-get may be at work
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

# free_port NAME PORT VARIABLE: a taken port is a message, never a kill.
free_port() {
	! listening "$2" || die "Port $2, for $1, is taken by another program. Stop that, or choose another port with $3=…"
}
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# eventually SECONDS COMMAND…: until it succeeds.
eventually() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep 0.1
	done
}

# born PID: when the process started, in the kernel's ticks; nothing for one that has ended.
# A number in a file may long be another process's; number and birth together are not.
born() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	read -ra stat <<<"${stat##*) }"
	[[ ${stat[0]} == Z ]] || echo "${stat[19]}"
}
