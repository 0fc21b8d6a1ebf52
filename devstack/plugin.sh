#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The DevStack plugin of nova-dedup-migrate: the driver, the agent and the
# patched QEMU on compute hosts, the controller, the panels of Horizon, the
# daemon beside cinder-backup, and Tempest's options. DevStack sources it with
# the phase as arguments, after settings.

_DEDUP_MIGRATE_XTRACE=$(set +o | grep xtrace)
set +o xtrace

# The prefix that the AppArmor rules in etc/apparmor.d/local name.
DEDUP_MIGRATE_PREFIX=/opt/nova-dedup-migrate
DEDUP_MIGRATE_DRIVER=dedup_migrate.DedupMigrateLibvirtDriver
DEDUP_MIGRATE_CONF_DIR=/etc/nova-dedup-migrate
DEDUP_MIGRATE_CONF=$DEDUP_MIGRATE_CONF_DIR/nova-dedup-migrate.conf
DEDUP_MIGRATE_UWSGI_CONF=$DEDUP_MIGRATE_CONF_DIR/api-uwsgi.ini
DEDUP_MIGRATE_APT_LIST=/etc/apt/sources.list.d/nova-dedup-migrate.list
DEDUP_MIGRATE_APPARMOR=/etc/apparmor.d/local
DEDUP_MIGRATE_APPARMOR_RULES="usr.sbin.libvirtd abstractions/libvirt-qemu"
# The lines between these are ours in files that others may write to, too.
DEDUP_MIGRATE_BEGIN="# nova-dedup-migrate: begin"
DEDUP_MIGRATE_END="# nova-dedup-migrate: end"

source "$DEDUP_MIGRATE_DIR/devstack/lib/controller"
source "$DEDUP_MIGRATE_DIR/devstack/lib/backups"

function _dedup_migrate_remove_rules {
    local file=$1
    if [[ -f "$file" ]]; then
        sudo sed -i "/^$DEDUP_MIGRATE_BEGIN\$/,/^$DEDUP_MIGRATE_END\$/d" \
            "$file"
    fi
}

# Let AppArmor run the QEMU in our prefix as it runs the distribution's.
function _dedup_migrate_add_rules {
    local rules
    [[ -d /etc/apparmor.d ]] || return 0
    for rules in $DEDUP_MIGRATE_APPARMOR_RULES; do
        sudo mkdir -p "$(dirname "$DEDUP_MIGRATE_APPARMOR/$rules")"
        sudo touch "$DEDUP_MIGRATE_APPARMOR/$rules"
        _dedup_migrate_remove_rules "$DEDUP_MIGRATE_APPARMOR/$rules"
        {
            echo "$DEDUP_MIGRATE_BEGIN"
            cat "$DEDUP_MIGRATE_DIR/etc/apparmor.d/local/$rules"
            echo "$DEDUP_MIGRATE_END"
        } | sudo tee -a "$DEDUP_MIGRATE_APPARMOR/$rules" >/dev/null
    done
    _dedup_migrate_reload_apparmor
}

function _dedup_migrate_reload_apparmor {
    if [[ -e /etc/apparmor.d/usr.sbin.libvirtd ]]; then
        sudo apparmor_parser --replace /etc/apparmor.d/usr.sbin.libvirtd
    fi
}

# The daemons that may start QEMU; a host has one of the two.
function _dedup_migrate_libvirt_services {
    local service
    for service in libvirtd virtqemud; do
        if systemctl cat $service.service >/dev/null 2>&1; then
            echo $service
        fi
    done
}

# ID of the host's distribution, such as debian.
function _dedup_migrate_distribution {
    sed -n 's/^ID="\{0,1\}\([^"]*\).*/\1/p' /etc/os-release
}

function _dedup_migrate_check_source {
    local distribution
    if [[ -n "$DEDUP_MIGRATE_QEMU_SOURCE" ]]; then
        [[ -f "$DEDUP_MIGRATE_QEMU_SOURCE/VERSION" ]] || die $LINENO \
            "DEDUP_MIGRATE_QEMU_SOURCE is $DEDUP_MIGRATE_QEMU_SOURCE, which" \
            "has no file VERSION: set it to the directory of an unpacked" \
            "QEMU 10.0"
        return
    fi
    distribution=$(_dedup_migrate_distribution)
    [[ "$distribution" == debian ]] || die $LINENO \
        "DEDUP_MIGRATE_QEMU=build uses the source package of Debian's" \
        "archive, and this host runs $distribution. Set one of these:" \
        "DEDUP_MIGRATE_QEMU_SOURCE, to the directory of an unpacked QEMU" \
        "10.0; DEDUP_MIGRATE_QEMU, to the directory of a build that runs" \
        "here; DEDUP_MIGRATE_APT_REPOSITORY, to a repository with packages" \
        "for this host"
}

# Fail before anything is installed, if there is no such QEMU for this host.
function check_dedup_migrate_qemu {
    is_service_enabled n-cpu || return 0
    case "$DEDUP_MIGRATE_QEMU" in
        none) ;;
        package)
            is_ubuntu || die $LINENO "DEDUP_MIGRATE_QEMU=package needs" \
                "Debian or Ubuntu: set it to build, or to the directory of" \
                "a build"
            [[ -n "$DEDUP_MIGRATE_APT_REPOSITORY" ]] || die $LINENO \
                "DEDUP_MIGRATE_QEMU=package needs" \
                "DEDUP_MIGRATE_APT_REPOSITORY: set it to a repository that" \
                "'make repo' has made"
            ;;
        build) _dedup_migrate_check_source ;;
        /*)
            [[ -x "$DEDUP_MIGRATE_QEMU/bin/qemu-system-x86_64" ]] ||
                die $LINENO "DEDUP_MIGRATE_QEMU is $DEDUP_MIGRATE_QEMU," \
                    "which has no bin/qemu-system-x86_64: set it to the" \
                    "directory that 'qemu/build patched' printed"
            ;;
        *)
            die $LINENO "DEDUP_MIGRATE_QEMU is $DEDUP_MIGRATE_QEMU: set it" \
                "to package, build, none or a directory"
            ;;
    esac
}

function _dedup_migrate_use_prefix {
    local build=$1
    local service directory
    sudo rm -rf "$DEDUP_MIGRATE_PREFIX"
    sudo cp -a "$build" "$DEDUP_MIGRATE_PREFIX"
    _dedup_migrate_add_rules
    for service in $(_dedup_migrate_libvirt_services); do
        directory=/etc/systemd/system/$service.service.d
        sudo mkdir -p "$directory"
        sudo tee "$directory/nova-dedup-migrate.conf" >/dev/null <<EOF
[Service]
Environment=PATH=$DEDUP_MIGRATE_PREFIX/bin:/usr/sbin:/usr/bin:/sbin:/bin
EOF
        sudo systemctl daemon-reload
        restart_service "$service"
    done
}

function _dedup_migrate_build_qemu {
    local options=()
    if [[ -n "$DEDUP_MIGRATE_QEMU_SOURCE" ]]; then
        options=(--source-dir "$DEDUP_MIGRATE_QEMU_SOURCE")
    fi
    NOVA_DEDUP_MIGRATE_CACHE=$DATA_DIR/nova-dedup-migrate \
        "$DEDUP_MIGRATE_DIR/qemu/build" "${options[@]}" patched | tail -n 1
}

function _dedup_migrate_install_packages {
    echo "deb $DEDUP_MIGRATE_APT_REPOSITORY" |
        sudo tee "$DEDUP_MIGRATE_APT_LIST" >/dev/null
    REPOS_UPDATED=False
    install_package qemu-system-x86 qemu-system-common qemu-utils \
        qemu-block-extra
}

function install_dedup_migrate_qemu {
    local build
    case "$DEDUP_MIGRATE_QEMU" in
        none) ;;
        package) _dedup_migrate_install_packages ;;
        build)
            build=$(_dedup_migrate_build_qemu)
            _dedup_migrate_use_prefix "$build"
            ;;
        *) _dedup_migrate_use_prefix "$DEDUP_MIGRATE_QEMU" ;;
    esac
}

function install_dedup_migrate {
    setup_develop "$DEDUP_MIGRATE_DIR" \
        "$(_dedup_migrate_has_controller && echo controller,client)"
    if is_service_enabled cinder-backup-assist; then
        pip_install "zstandard>=0.22.0"
    fi
    if is_service_enabled n-cpu; then
        install_dedup_migrate_qemu
    fi
}

# nova-compute's own file is made from nova.conf when it starts.
function configure_dedup_migrate {
    is_service_enabled n-cpu || return 0
    iniset "$NOVA_CONF" DEFAULT compute_driver "$DEDUP_MIGRATE_DRIVER"
    iniset "$NOVA_CONF" dedup_migrate strategy "$DEDUP_MIGRATE_STRATEGY"
    # The agent of DevStack's user reads disks that belong to QEMU's.
    for section in dedup_migrate_privileged dedup_migrate_writer; do
        iniset "$NOVA_CONF" $section helper_command \
            "sudo $NOVA_BIN_DIR/privsep-helper --config-file $NOVA_CPU_CONF"
    done
}

# Where Horizon reads the panels of plugins from.
function _dedup_migrate_panels {
    echo "$HORIZON_DIR/openstack_dashboard/local/enabled"
}

# They are there for users whose catalog has the controller.
function configure_dedup_migrate_panels {
    cp "$DEDUP_MIGRATE_DIR"/nova_dedup_migrate_dashboard/enabled/_21*.py \
        "$(_dedup_migrate_panels)"
}

function start_dedup_migrate {
    start_dedup_migrate_controller
    start_dedup_migrate_backups
    if is_service_enabled dedup-migrate-agent; then
        run_process dedup-migrate-agent \
            "$NOVA_BIN_DIR/nova-dedup-migrate-agent \
--config-file $NOVA_CPU_CONF" "$LIBVIRT_GROUP"
    fi
}

# Whether live migrations leave out what guests have read from volumes.
function _dedup_migrate_shares_volumes {
    [[ "$DEDUP_MIGRATE_COMPUTE_HOSTS" -gt 1 ]] &&
        is_service_enabled c-vol &&
        [[ "$DEDUP_MIGRATE_QEMU" != none ]] &&
        [[ "$DEDUP_MIGRATE_STRATEGY" != off ]]
}

# _dedup_migrate_answer COMMAND...: print True if it succeeds, else False
function _dedup_migrate_answer {
    if "$@"; then
        echo True
    else
        echo False
    fi
}

function configure_dedup_migrate_tempest {
    iniset "$TEMPEST_CONFIG" compute min_compute_nodes \
        "$DEDUP_MIGRATE_COMPUTE_HOSTS"
    if [[ "$DEDUP_MIGRATE_COMPUTE_HOSTS" -gt 1 ]]; then
        iniset "$TEMPEST_CONFIG" compute-feature-enabled live_migration True
        # DevStack sets these to False, unless its own variables are set.
        iniset "$TEMPEST_CONFIG" compute-feature-enabled \
            block_migration_for_live_migration \
            "${USE_BLOCK_MIGRATION_FOR_LIVE_MIGRATION:-True}"
        iniset "$TEMPEST_CONFIG" compute-feature-enabled \
            live_migrate_back_and_forth "${LIVE_MIGRATE_BACK_AND_FORTH:-True}"
        iniset "$TEMPEST_CONFIG" compute-feature-enabled \
            volume_backed_live_migration \
            "$(_dedup_migrate_answer is_service_enabled c-api)"
    fi
    iniset "$TEMPEST_CONFIG" service_available dedup_migrate True
    iniset "$TEMPEST_CONFIG" dedup_migrate controller \
        "$(_dedup_migrate_answer is_service_enabled dedup-migrate-api)"
    iniset "$TEMPEST_CONFIG" dedup_migrate shared_volumes \
        "${DEDUP_MIGRATE_SHARED_VOLUMES:-$(_dedup_migrate_answer \
            _dedup_migrate_shares_volumes)}"
}

function stop_dedup_migrate {
    stop_dedup_migrate_controller
    stop_dedup_migrate_backups
    if is_service_enabled dedup-migrate-agent; then
        stop_process dedup-migrate-agent
    fi
}

function clean_dedup_migrate {
    local rules service directory
    for rules in $DEDUP_MIGRATE_APPARMOR_RULES; do
        _dedup_migrate_remove_rules "$DEDUP_MIGRATE_APPARMOR/$rules"
    done
    if [[ -d "$DEDUP_MIGRATE_PREFIX" ]]; then
        sudo rm -rf "$DEDUP_MIGRATE_PREFIX"
        _dedup_migrate_reload_apparmor
    fi
    for service in $(_dedup_migrate_libvirt_services); do
        directory=/etc/systemd/system/$service.service.d
        if [[ -d "$directory" ]]; then
            sudo rm -f "$directory/nova-dedup-migrate.conf"
            sudo rmdir --ignore-fail-on-non-empty "$directory"
            sudo systemctl daemon-reload
        fi
    done
    if [[ -n "${HORIZON_DIR:-}" ]]; then
        rm -f "$(_dedup_migrate_panels)"/_21*_dedup_migrate_*.py
    fi
    clean_dedup_migrate_controller
    clean_dedup_migrate_backups
    sudo rm -f "$DEDUP_MIGRATE_APT_LIST"
    sudo rm -rf "$DATA_DIR/nova-dedup-migrate"
    # Nova removes its files itself, if it is cleaned before us.
    if [[ -f "$NOVA_CONF" ]]; then
        if [[ "$(iniget "$NOVA_CONF" DEFAULT compute_driver)" == \
                "$DEDUP_MIGRATE_DRIVER" ]]; then
            iniset "$NOVA_CONF" DEFAULT compute_driver libvirt.LibvirtDriver
        fi
        inidelete "$NOVA_CONF" dedup_migrate strategy
        inidelete "$NOVA_CONF" dedup_migrate_privileged helper_command
        inidelete "$NOVA_CONF" dedup_migrate_writer helper_command
    fi
}

case "$1-${2:-}" in
    stack-pre-install) check_dedup_migrate_qemu ;;
    stack-install)
        echo_summary "Installing nova-dedup-migrate"
        install_dedup_migrate
        ;;
    stack-post-config)
        echo_summary "Configuring nova-dedup-migrate"
        configure_dedup_migrate
        configure_dedup_migrate_controller
        configure_dedup_migrate_backups
        if is_service_enabled horizon; then
            configure_dedup_migrate_panels
        fi
        ;;
    stack-extra)
        echo_summary "Starting nova-dedup-migrate"
        start_dedup_migrate
        ;;
    stack-test-config)
        if is_service_enabled tempest; then
            echo_summary "Configuring Tempest for nova-dedup-migrate"
            configure_dedup_migrate_tempest
        fi
        ;;
    unstack-*) stop_dedup_migrate ;;
    clean-*) clean_dedup_migrate ;;
esac

$_DEDUP_MIGRATE_XTRACE
