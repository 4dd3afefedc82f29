# Functions that unpack Debian's packages into a folder, without installing them; sourced by other scripts. They need apt and
# dpkg, no rights, and change nothing in the system.

# debian_lists ARCHITECTURE: downloads the lists of packages of Debian 12, or of the release that SUITE names, unless that was done.
debian_lists() {
  local suite=${SUITE:-bookworm}
  local state=$PWD/target/debian/$suite-$1
  export APT_CONFIG=$state/apt.conf
  [ -f "$state/done" ] && return
  mkdir -p "$state"/{lists,cache/archives,state}/partial
  touch "$state/status"
  cat >"$state/apt.conf" <<END
APT::Architecture "$1"; APT::Architectures "$1"; APT::Sandbox::User "$(id -un)"; APT::Install-Recommends "false";
Dir::Etc::sourcelist "$state/sources.list"; Dir::Etc::sourceparts "/nonexistent";
Dir::State "$state/state"; Dir::State::lists "$state/lists"; Dir::State::status "$state/status"; Dir::Cache "$state/cache";
END
  local part
  for part in "debian $suite" "debian-security $suite-security"; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/$part main"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/$part main"
  done >"$state/sources.list"
  apt-get update --quiet --quiet
  touch "$state/done"
}

# debian_unpack ARCHITECTURE FOLDER PACKAGE...: unpacks these packages alone.
debian_unpack() {
  local architecture=$1 folder=$2 downloads
  shift 2
  debian_lists "$architecture"
  downloads=$(mktemp -d)
  (cd "$downloads" && apt-get download --quiet --quiet "$@")
  mkdir -p "$folder"
  local file
  for file in "$downloads"/*.deb; do dpkg --extract "$file" "$folder"; done
  rm -r "$downloads"
}

# debian_unpack_all ARCHITECTURE FOLDER PACKAGE...: unpacks them and what they need.
debian_unpack_all() {
  local architecture=$1 folder=$2
  shift 2
  debian_lists "$architecture"
  apt-get install --quiet --quiet --yes --download-only "$@" >/dev/null
  mkdir -p "$folder"
  local file
  for file in "${APT_CONFIG%/*}/cache/archives"/*.deb; do dpkg --extract "$file" "$folder"; done
}

# debian_source FOLDER PACKAGE...: unpacks the original sources of these packages, each as a folder.
debian_source() {
  local folder=$1 downloads archive
  shift
  debian_lists amd64
  downloads=$(mktemp -d)
  (cd "$downloads" && apt-get source --quiet --quiet --download-only --tar-only "$@")
  mkdir -p "$folder"
  for archive in "$downloads"/*.orig.tar.*; do tar --extract --file "$archive" --directory "$folder"; done
  rm -r "$downloads"
}
