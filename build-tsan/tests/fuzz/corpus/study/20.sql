DELETE FROM version_info;
