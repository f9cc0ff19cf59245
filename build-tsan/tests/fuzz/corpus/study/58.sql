DROP TABLE version_info;
