{% for name in databases %}
CREATE DATABASE IF NOT EXISTS {{ name }} CHARACTER SET utf8;
{% endfor %}
CREATE OR REPLACE USER 'openstack'@'%' IDENTIFIED BY '{{ settings.password }}';
GRANT ALL PRIVILEGES ON *.* TO 'openstack'@'%';
