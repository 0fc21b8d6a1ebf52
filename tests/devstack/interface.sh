#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The part of DevStack's published plugin interface that our plugin uses, for
# tests: each function does to files below $STATE and $DEST what DevStack does
# to those of a host, or logs that it was called.

function called {
    echo "$*" >>"$STATE/calls"
}

function die {
    shift
    echo "ERROR: $*" >&2
    exit 1
}

function define_plugin {
    called define_plugin "$1"
}

function echo_summary {
    echo "$*"
}

function is_ubuntu {
    [[ "$DISTRO_FAMILY" == debian ]]
}

function enable_service {
    local service
    for service in "$@"; do
        is_service_enabled "$service" ||
            ENABLED_SERVICES="$ENABLED_SERVICES,$service"
    done
}

function is_service_enabled {
    local service
    for service in "$@"; do
        [[ ",$ENABLED_SERVICES," == *",$service,"* ]] && return 0
    done
    return 1
}

function setup_develop {
    [[ -f "$1/setup.py" ]] || die 0 "$1 is no Python project"
    called setup_develop "$@"
}

function pip_install {
    called pip_install "$@"
}

function install_package {
    called install_package "$@"
}

function restart_service {
    called restart_service "$1"
}

function wait_for_service {
    called wait_for_service "$2"
}

function recreate_database {
    called recreate_database "$1"
}

function database_connection_url {
    echo "mysql+pymysql://root:secret@127.0.0.1/$1?charset=utf8"
}

function create_service_user {
    called create_service_user "$@"
}

function get_or_create_service {
    called get_or_create_service "$1" "$2"
    echo 6f1e
}

function get_or_create_endpoint {
    called get_or_create_endpoint "$@"
}

# configure_keystone_authtoken_middleware FILE USER [SECTION]
function configure_keystone_authtoken_middleware {
    iniset "$1" "${3:-keystone_authtoken}" username "$2"
    iniset "$1" "${3:-keystone_authtoken}" auth_type password
}

# get_transport_url [VHOST]
function get_transport_url {
    echo "rabbit://stackrabbit:secret@127.0.0.1:5672/${1:-}"
}

# iniset_rpc_backend PACKAGE FILE [SECTION] [VHOST]
function iniset_rpc_backend {
    iniset "$2" "${3:-DEFAULT}" transport_url "$(get_transport_url "${4:-}")"
}


# run_process NAME COMMAND [GROUP]
function run_process {
    [[ ! -e "$STATE/units/$1" ]] || die 0 "$1 runs already"
    printf 'ExecStart=%s\nGroup=%s\n' "$2" "${3:-}" >"$STATE/units/$1"
}

function stop_process {
    rm -f "$STATE/units/$1"
}


# ini FILE SECTION OPTION [set VALUE|get|delete]
function ini {
    python3 - "$@" <<'EOF'
import configparser
import sys

path, section, option, what, *value = sys.argv[1:]
parser = configparser.RawConfigParser()
parser.optionxform = str
parser.read(path)
if what == 'get':
    print(parser.get(section, option, fallback=''))
    sys.exit()
if what == 'set':
    if section != 'DEFAULT' and not parser.has_section(section):
        parser.add_section(section)
    parser.set(section, option, value[0])
elif section == 'DEFAULT' or parser.has_section(section):
    parser.remove_option(section, option)
with open(path, 'w') as output:
    parser.write(output)
EOF
}

function iniset {
    ini "$1" "$2" "$3" set "$4"
}

function iniget {
    ini "$1" "$2" "$3" get
}

function inidelete {
    ini "$1" "$2" "$3" delete
}
